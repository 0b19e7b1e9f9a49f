//! `headspace run`: replaces this process by the command, with headspace in each Python process that it
//! starts.
//!
//! The command takes over this process (`exec`), so its exit code, signals and streams are its own.
//! Python imports headspace because a folder with a `sitecustomize` is prepended to `PYTHONPATH`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::args::RunArgs;
use crate::{Context, EXIT_USAGE};

/// The exit code of a shell if the command cannot be executed.
const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The exit code of a shell if there is no such command.
const EXIT_NOT_FOUND: i32 = 127;

/// The variable with the previous environment: the previous value of each variable that was set here.
const BEFORE: &str = "HEADSPACE_RUN";
/// Separates the entries of that variable.
const SEPARATOR: u8 = 0x1f;

const PYTHONPATH: &str = "PYTHONPATH";

/// Runs the command in this process. Returns only if that fails.
///
/// # Errors
///
/// Returns an error if the message cannot be printed.
pub(crate) fn run(args: &RunArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let Some((program, rest)) = args.command.split_first() else {
        return Ok(EXIT_USAGE);
    };
    let mut command = std::process::Command::new(program);
    command.args(rest);
    let switched_off = std::env::var("HEADSPACE").is_ok_and(|value| is_off(&value));
    if !switched_off {
        let Some(folder) = context.inject.as_deref() else {
            let message = "this `headspace` was built without the Python package, which `run` \
                           needs (`pip install .` in a clone of headspace, then `python -m \
                           headspace run`)";
            return context.fail(message, EXIT_USAGE);
        };
        let ours = settings(args)?;
        command.envs(environment(folder, ours, &|name| std::env::var_os(name)));
        if let Some(option) = keeps_out(program, rest)
            && !args.quiet
        {
            // With `-S`, Python finds no installed package.
            let or_wrap = match option.as_str() {
                "-S" => "",
                _ => ", or call `headspace.wrap` in the script",
            };
            context.warn(format_args!(
                "`python {option}` prevents Python from loading headspace, so nothing is measured. \
                 The command runs without it. To measure, remove `{option}`{or_wrap}."
            ))?;
        }
    }
    context.out.flush()?;
    context.err.flush()?;
    let error = command.exec();
    let (code, why) = refusal(program, &error);
    let program = program.to_string_lossy();
    context.fail(format!("cannot run `{program}`: {why}"), code)
}

/// Whether a value of `HEADSPACE` disables it, by the same rule as in Python.
fn is_off(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    ["0", "off", "false", "no"].contains(&value.as_str())
}

fn refusal(program: &OsStr, error: &io::Error) -> (i32, String) {
    let path = Path::new(program);
    let is_path = program.as_bytes().contains(&b'/');
    match error.kind() {
        ErrorKind::NotFound if is_path && path.exists() => (
            EXIT_NOT_EXECUTABLE,
            "the program that its first line names does not exist".to_owned(),
        ),
        ErrorKind::NotFound if !is_path && path.is_file() => (
            EXIT_NOT_FOUND,
            format!(
                "no command of that name is on the PATH (for the file of that name: `python {}`)",
                path.display()
            ),
        ),
        ErrorKind::NotFound if is_path => (EXIT_NOT_FOUND, "there is no such file".to_owned()),
        ErrorKind::NotFound if program.as_bytes().starts_with(b"-") => (
            EXIT_USAGE,
            "`headspace run` has no option of that name (`headspace run --help` lists them)"
                .to_owned(),
        ),
        ErrorKind::NotFound => (
            EXIT_NOT_FOUND,
            "no command of that name is on the PATH".to_owned(),
        ),
        _ if path.extension().is_some_and(|end| end == "py") && path.is_file() => (
            EXIT_NOT_EXECUTABLE,
            format!("{error} (write `python {}`)", path.display()),
        ),
        _ => (EXIT_NOT_EXECUTABLE, error.to_string()),
    }
}

/// The options as environment variables for Python.
fn settings(args: &RunArgs) -> io::Result<BTreeMap<&'static str, OsString>> {
    // The script may change its working directory.
    let dir = args.dir.as_ref().map(std::path::absolute).transpose()?;
    let text = |text: &Option<String>| text.as_ref().map(OsString::from);
    let number = |number: Option<u32>| number.map(|number| number.to_string().into());
    let switch = |is_on: bool| is_on.then(|| "1".into());
    let probe = &args.probe;
    let all = [
        ("HEADSPACE_MODE", args.mode.map(|mode| mode.as_str().into())),
        ("HEADSPACE_DIR", dir.map(PathBuf::into_os_string)),
        ("HEADSPACE_INTERVAL", text(&args.interval)),
        ("HEADSPACE_QUIET", switch(args.quiet)),
        ("HEADSPACE_LOOP", text(&args.loop_name)),
        ("HEADSPACE_BATCH_FROM", text(&args.batch_from)),
        ("HEADSPACE_EPOCHS", number(args.epochs)),
        ("HEADSPACE_TOTAL_STEPS", number(args.total_steps)),
        ("HEADSPACE_MEMORY", text(&args.memory)),
        ("HEADSPACE_PROBE_STEPS", number(probe.probe_steps)),
        ("HEADSPACE_NUM_CACHES", number(probe.num_caches)),
        ("HEADSPACE_STOP_AFTER_PROBE", switch(probe.stop_after_probe)),
        ("HEADSPACE_EXACTLY_ONCE", switch(probe.exactly_once)),
        (
            "HEADSPACE_RETURN_CACHES_AFTER",
            number(probe.return_caches_after),
        ),
        ("HEADSPACE_STOP_AFTER", number(probe.stop_after)),
        (
            "HEADSPACE_WHAT_IF_STEPS",
            number(args.what_if.what_if_steps),
        ),
        ("HEADSPACE_KEEP_DATA", switch(args.what_if.keep_data)),
        // The command keeps this pid, and only the process with it reports that nothing was measured.
        ("HEADSPACE_RUN_PID", number(Some(std::process::id()))),
    ];
    let set = all.into_iter();
    let set = set.filter_map(|(name, value)| Some((name, value?)));
    Ok(set.collect())
}

/// The variables to set: `ours`, and those that inject headspace.
fn environment(
    folder: &Path,
    ours: BTreeMap<&'static str, OsString>,
    get: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let paths = get(PYTHONPATH);
    let folder = folder.as_os_str().as_bytes();
    let mut all = vec![folder];
    if let Some(paths) = paths.as_ref().filter(|paths| !paths.is_empty()) {
        let others = paths.as_bytes().split(|byte| *byte == b':');
        all.extend(others.filter(|path| *path != folder));
    }
    let joined = OsString::from_vec(all.join(&b':'));
    // Inside another `headspace run`, keep the environment from before the outer one.
    let mut before = get(BEFORE).map(OsString::into_vec).unwrap_or_default();
    let mut set: Vec<(OsString, OsString)> = vec![(PYTHONPATH.into(), joined)];
    set.extend(ours.into_iter().map(|(name, value)| (name.into(), value)));
    for (name, _) in &set {
        let name = name.as_bytes();
        let is_known = before
            .split(|byte| *byte == SEPARATOR)
            .any(|entry| entry.split(|byte| *byte == b'=').next() == Some(name));
        if is_known {
            continue;
        }
        if !before.is_empty() {
            before.push(SEPARATOR);
        }
        before.extend_from_slice(name);
        if let Some(value) = get(&String::from_utf8_lossy(name)) {
            before.push(b'=');
            before.extend_from_slice(value.as_bytes());
        }
    }
    set.push((BEFORE.into(), OsString::from_vec(before)));
    set
}

/// The option of a Python command line that disables `PYTHONPATH` or `sitecustomize`.
fn keeps_out(program: &OsStr, args: &[OsString]) -> Option<String> {
    let name = Path::new(program).file_name()?.to_str()?;
    if !name.starts_with("python") {
        return None;
    }
    let mut args = args.iter();
    while let Some(arg) = args.next().and_then(|arg| arg.to_str()) {
        let letters = arg.strip_prefix('-')?;
        if letters.is_empty() || letters.starts_with('-') {
            return None;
        }
        for (at, letter) in letters.char_indices() {
            match letter {
                'I' | 'E' | 'S' => return Some(format!("-{letter}")),
                // The remaining arguments belong to another program.
                'c' | 'm' => return None,
                'W' | 'X' => {
                    if letters.len() == at + 1 {
                        args.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
