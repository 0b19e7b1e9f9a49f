use super::super::PartId;
use super::super::hour;
use super::*;

fn state(ranks: u32, seconds: u64) -> PageState {
    let mut state = PageState::new("runs/a-run".as_ref());
    for rank in 0..ranks {
        for record in hour::records(rank, seconds) {
            state.add_record(rank, record);
        }
    }
    state
}

#[test]
fn an_hour_of_eight_ranks_is_a_small_page() {
    let mut state = state(1, 1500);
    // The number of points does not depend on the length of the run, so a short run is enough.
    for rank in 1..8 {
        for record in hour::records(rank, 490) {
            state.add_record(rank, record);
        }
    }
    let page = state.page();
    let json = serde_json::to_string(&page).unwrap();
    assert!(json.len() < 1 << 20, "{} bytes", json.len());
    assert!(page.ranks[0].at_s.len() <= MOST_POINTS);
}

#[test]
fn the_page_shows_the_numbers_of_the_summary() {
    let page = state(1, 60).page();
    let part = |id| &page.parts.iter().find(|part| part.id == id).unwrap().html;
    for words in ["11.2 ms", "6.2 ms", "5.0 ms", "54.9 % ± 0.8", "up to 2.2x"] {
        assert!(part(PartId::Verdict).contains(words), "{words}");
    }
    assert!(part(PartId::Bottleneck).contains("Run 7 concurrent calls of <code>decode</code>"));
    assert!(
        part(PartId::Stages).contains("bottleneck") && part(PartId::Stages).contains("44.6 ms")
    );
    assert!(part(PartId::Queues).contains("0.6 of 16"));
    assert!(part(PartId::Gpus).contains("1.7 of 7 engines"));
}

#[test]
fn ranks_are_shown_side_by_side() {
    let state = state(4, 60);
    let page = state.page();
    let ranks = &page
        .parts
        .iter()
        .find(|part| part.id == PartId::Ranks)
        .unwrap()
        .html;
    assert!(ranks.contains("Rank 3, because of its data"), "{ranks}");
    assert_eq!(page.ranks.len(), 4);
    let summary = state.summary().unwrap();
    let RecordBody::Summary(summary) = summary.body else {
        panic!("no summary")
    };
    assert_eq!(summary.ranks.unwrap().slowest, Some(3));
}

#[test]
fn without_a_summary_the_probe_is_that_of_the_main_loop() {
    let mut state = PageState::new("runs/a-run".as_ref());
    let mut records = hour::records(0, 30);
    records.retain(|record| !matches!(record.body, RecordBody::Summary(_)));
    // The ticks are of the loop `loader`.
    for loop_name in ["loader", "check"] {
        let probe = ProbeRecord {
            loop_name: loop_name.into(),
            ..ProbeRecord::default()
        };
        let mut record = hour::records(0, 0).remove(0);
        record.body = RecordBody::Probe(probe);
        records.push(record);
    }
    for record in records {
        state.add_record(0, record);
    }
    assert_eq!(state.ranks[&0].main_probe().unwrap().loop_name, "loader");
}

#[test]
fn an_update_turns_the_previous_page_into_the_current_one() {
    let mut state = state(2, 465);
    let mut shown = state.page();
    for second in 466..490 {
        for rank in 0..2 {
            let body = RecordBody::Tick(hour::tick(rank, second));
            let mut record = hour::records(rank, 0).remove(0);
            record.body = body;
            state.add_record(rank, record);
        }
        let now = state.page();
        let update = now.since(&shown).unwrap();
        for part in update.parts {
            let place = shown
                .parts
                .iter_mut()
                .find(|old| old.id == part.id)
                .unwrap();
            *place = part;
        }
        for news in update.ranks {
            let rank = &mut shown.ranks[news.place];
            rank.at_s.truncate(news.from);
            rank.at_s.extend(news.tail.at_s);
            rank.replays = news.tail.replays;
            for (chart, tail) in rank.charts.iter_mut().zip(news.tail.charts) {
                chart.marks = tail.marks;
                for (line, tail) in chart.lines.iter_mut().zip(tail.lines) {
                    line.values.truncate(news.from);
                    line.values.extend(tail.values);
                }
            }
        }
        assert_eq!(shown, now, "second {second}");
    }
}

#[test]
fn the_update_after_one_second_is_small() {
    let mut state = state(1, 400);
    let before = state.page();
    let mut record = hour::records(0, 0).remove(0);
    record.body = RecordBody::Tick(hour::tick(0, 401));
    state.add_record(0, record);
    let update = state.page().since(&before).unwrap();
    let json = serde_json::to_string(&update).unwrap();
    assert!(json.len() < 8 << 10, "{} bytes", json.len());
}

#[test]
fn a_run_without_a_record_has_a_page_too() {
    let page = PageState::default().page();
    assert!(page.file().contains("No summary yet"));
}

#[test]
fn a_stage_called_like_markup_changes_nothing() {
    let name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let mut state = PageState::new(name.as_ref());
    for mut record in hour::records(0, 30) {
        match &mut record.body {
            RecordBody::Summary(summary) => {
                summary.stages[1].name = name.into();
                summary.queues[0].name = name.into();
                summary.bottleneck_stage = Some(name.into());
                summary.remedies[0].what = format!("Run `{name}` more.");
            }
            RecordBody::Tick(tick) => tick.queues[0].name = name.into(),
            _ => {}
        }
        state.add_record(0, record);
    }
    for document in [state.page().file(), state.page().served()] {
        assert!(!document.contains("<img"), "markup from outside");
        assert!(!document.contains("<script>alert"), "a script from outside");
    }
    // The data, the style and the three scripts of the page itself.
    assert_eq!(state.page().file().matches("</script").count(), 4);
}

#[test]
fn a_file_loads_no_other_resource() {
    let file = state(2, 30).page().file();
    for fetches in ["src=", "@import", "url(", "<link rel=\"stylesheet\""] {
        assert!(!file.contains(fetches), "{fetches}");
    }
    assert!(file.contains("The MIT License"));
}
