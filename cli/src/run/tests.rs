use std::collections::HashMap;

use super::*;

fn made(before: &[(&str, &str)], ours: &[(&'static str, &str)]) -> HashMap<String, String> {
    let before: HashMap<String, String> = before
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let ours = ours.iter().map(|(name, value)| (*name, value.into()));
    let get = |name: &str| before.get(name).map(OsString::from);
    environment(Path::new("/inject"), ours.collect(), &get)
        .into_iter()
        .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
        .collect()
}

#[test]
fn the_injected_folder_comes_before_the_existing_paths() {
    assert_eq!(made(&[], &[])["PYTHONPATH"], "/inject");
    assert_eq!(
        made(&[("PYTHONPATH", "/a:/b")], &[])["PYTHONPATH"],
        "/inject:/a:/b"
    );
    // An empty entry is the current folder; an empty variable has no entries.
    assert_eq!(made(&[("PYTHONPATH", "")], &[])["PYTHONPATH"], "/inject");
    assert_eq!(
        made(&[("PYTHONPATH", "/a:/inject")], &[])["PYTHONPATH"],
        "/inject:/a"
    );
}

#[test]
fn the_previous_environment_is_passed_on_so_that_it_can_be_restored() {
    let set = made(
        &[("PYTHONPATH", "/a"), ("HEADSPACE_MODE", "measure")],
        &[("HEADSPACE_DIR", "/runs"), ("HEADSPACE_MODE", "probe")],
    );
    assert_eq!(set["HEADSPACE_MODE"], "probe");
    assert_eq!(
        set["HEADSPACE_RUN"],
        "PYTHONPATH=/a\u{1f}HEADSPACE_DIR\u{1f}HEADSPACE_MODE=measure"
    );
}

#[test]
fn within_another_run_the_first_environment_is_the_one_that_is_kept() {
    let set = made(
        &[
            ("PYTHONPATH", "/inject"),
            ("HEADSPACE_MODE", "probe"),
            ("HEADSPACE_RUN", "PYTHONPATH\u{1f}HEADSPACE_MODE"),
        ],
        &[("HEADSPACE_DIR", "/runs"), ("HEADSPACE_MODE", "replay")],
    );
    assert_eq!(
        set["HEADSPACE_RUN"],
        "PYTHONPATH\u{1f}HEADSPACE_MODE\u{1f}HEADSPACE_DIR"
    );
}

#[test]
fn an_option_of_python_that_keeps_headspace_out_is_found() {
    let out = |line: &str| {
        let mut words = line.split(' ').map(OsString::from);
        let program = words.next().unwrap();
        keeps_out(&program, &words.collect::<Vec<_>>())
    };
    assert_eq!(out("python -I train.py"), Some("-I".to_owned()));
    assert_eq!(
        out("/opt/bin/python3.11 -uE train.py"),
        Some("-E".to_owned())
    );
    assert_eq!(out("python -X dev -S -m train"), Some("-S".to_owned()));
    for kept in [
        "python train.py -I",
        "python -m train -E",
        "python -c I -S",
        "python -X I train.py",
        "python -WI train.py",
        "python --help",
        "torchrun -I",
        "python",
    ] {
        assert_eq!(out(kept), None, "{kept}");
    }
}

#[test]
fn each_option_of_a_loop_is_an_option_of_the_command_and_a_variable() {
    use clap::Parser as _;
    use headspace_agent::model::{LoopOption, OptionsFrom};

    for option in LoopOption::ALL {
        let value = match option {
            LoopOption::Mode => "replay",
            _ => "321",
        };
        let written = OptionsFrom::Run.with(option, value);
        let words = format!("headspace run {written} -- train");
        let parsed = crate::args::Cli::try_parse_from(words.split(' ')).unwrap();
        let crate::args::Command::Run(args) = parsed.command else {
            panic!("`{words}` is another command");
        };

        let set = settings(&args).unwrap();

        let options: Vec<String> = set
            .iter()
            .filter(|(name, _)| **name != "HEADSPACE_RUN_PID")
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .collect();
        assert_eq!(options, [OptionsFrom::Environment.with(option, value)]);
    }
}
