// Shows the page's data, which comes from the document itself or from the server.
"use strict";

(() => {
  const { Chart } = headspaceCharts;
  const drawn = new Map();
  let page = null;
  let chosen = null;

  const places = new Map(
    [...document.querySelectorAll("[data-chart]")].map((place) => [place.dataset.chart, place]));
  const picker = document.getElementById("picker");
  const select = picker.querySelector("select");

  const heightOf = (id) => {
    const narrow = matchMedia("(max-width: 620px)").matches;
    return id === "step" ? (narrow ? 210 : 280) : narrow ? 160 : 190;
  };

  // Puts the steps of all ranks in one chart. Their times differ, so they are joined.
  const together = (ranks) => {
    const steps = ranks.map((rank) => {
      const chart = rank.charts.find((one) => one.id === "step");
      const line = chart && (chart.lines.find((one) => one.name === "step") ?? chart.lines[0]);
      return line ? { rank: rank.rank, table: [rank.at_s, line.values] } : null;
    }).filter(Boolean);
    if (steps.length < 2) return null;
    const [times, ...columns] = uPlot.join(steps.map((step) => step.table));
    const lines = steps.map((step, at) => ({ name: `rank ${step.rank}`, tone: "", values: columns[at] }));
    return { atS: times, chart: { id: "ranks", of: "", title: "Step by rank", unit: "ms", lines, marks: [] } };
  };

  const show = (wanted) => {
    const seen = new Set();
    for (const { chart, atS, replays } of wanted) {
      const place = places.get(chart.id);
      if (!place) continue;
      const key = `${chart.id} ${chart.of}`;
      seen.add(key);
      const old = drawn.get(key);
      if (old) {
        old.figure.querySelector("figcaption").firstChild.textContent = `${chart.title} `;
        old.update(chart, atS, replays);
      } else {
        const made = new Chart(chart, atS, replays, heightOf(chart.id));
        place.append(made.figure);
        drawn.set(key, made);
        resized.observe(made.plot);
        made.draw();
      }
    }
    for (const [key, old] of drawn) {
      if (seen.has(key)) continue;
      old.drawn?.destroy();
      old.figure.remove();
      drawn.delete(key);
    }
  };

  const resized = new ResizeObserver(() => {
    for (const chart of drawn.values()) chart.fit();
  });

  const charts = () => {
    const ranks = page.ranks;
    const rank = ranks.find((one) => one.rank === chosen) ?? ranks[0];
    picker.hidden = ranks.length < 2;
    if (select.children.length !== ranks.length) {
      select.replaceChildren(...ranks.map((one) => new Option(one.rank, one.rank)));
      if (rank) select.value = rank.rank;
    }
    const wanted = (rank?.charts ?? []).map(
      (chart) => ({ chart, atS: rank.at_s, replays: rank.replays }));
    const all = together(ranks);
    if (all) wanted.push({ ...all, replays: [] });
    show(wanted);
  };

  const parts = (changed) => {
    for (const { id, html } of changed) {
      const place = document.getElementById(`part-${id}`);
      if (!place || place.dataset.html === html) continue;
      const open = [...place.querySelectorAll("details")].map((one) => one.open);
      place.innerHTML = html; // Escaped by the server, whose policy forbids scripts in it as well.
      place.querySelectorAll("details").forEach((one, at) => { one.open = open[at] ?? false; });
    }
  };

  const whole = (next) => {
    page = next;
    document.title = page.title;
    parts(page.parts);
    charts();
  };

  const update = (news) => {
    if (!page) return;
    parts(news.parts);
    for (const { place, from, at_s: times, replays, charts: tails } of news.ranks) {
      const rank = page.ranks[place];
      rank.at_s.splice(from, Infinity, ...times);
      rank.replays = replays;
      tails.forEach((tail, at) => {
        const chart = rank.charts[at];
        Object.assign(chart, { title: tail.title, marks: tail.marks });
        tail.lines.forEach((line, number) => {
          chart.lines[number].values.splice(from, Infinity, ...line.values);
        });
      });
    }
    if (news.ranks.length > 0) charts();
  };

  select.addEventListener("change", () => {
    chosen = Number(select.value);
    charts();
  });
  const redraw = () => {
    for (const [key, chart] of drawn) {
      chart.height = heightOf(key.split(" ")[0]);
      chart.again();
    }
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("(max-width: 620px)").addEventListener("change", redraw);

  const data = document.getElementById("page-data");
  if (data) {
    whole(JSON.parse(data.textContent));
    return;
  }
  const live = document.getElementById("live");
  const say = (state, words) => {
    live.className = `live ${state}`;
    live.textContent = words;
  };
  const listen = () => {
    const events = new EventSource("/events");
    events.addEventListener("page", (event) => {
      whole(JSON.parse(event.data));
      say("on", "live");
    });
    events.addEventListener("update", (event) => update(JSON.parse(event.data)));
    events.addEventListener("error", () => {
      say("off", "connection lost, trying again");
      // The browser reconnects by itself after a lost connection, but not after an error response: too
      // many pages are open, or a proxy cannot reach the server yet.
      if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
    });
  };
  listen();
})();
