//! What `run` asks of the software GPU alone: strict mode and fault scripts. A real card has neither,
//! so both are refused for it instead of ignored.

use crate::cli::RunArgs;
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use refrain_replay::strict::{Reports, declarations};
use refrain_replay::{DeviceSpec, OpenedDevice, Session};
use refrain_softgpu::gpu::faults::FaultScript;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Bytes of a fault script at most: a thousand faults, the most that one may have, are far shorter.
const MAX_SCRIPT: u64 = 1 << 16;

/// What strict mode found.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// Different reports, in the order in which they were first found.
    pub reports: Vec<Value>,
    /// Different ones that did not fit.
    pub dropped: u64,
}

/// Refuses the flags before anything is opened, if the device is no software GPU by name.
pub(super) fn check(args: &RunArgs) -> Result<(), CliError> {
    match (args.device.device, flag(args)) {
        (DeviceSpec::Rocm(_) | DeviceSpec::Cpu, Some(flag)) => {
            Err(refusal(flag, args.device.device))
        }
        _ => Ok(()),
    }
}

fn flag(args: &RunArgs) -> Option<&'static str> {
    if args.strict.is_some() {
        Some("--strict")
    } else {
        args.faults.as_ref().map(|_| "--faults")
    }
}

fn refusal(flag: &str, device: DeviceSpec) -> CliError {
    CliError::Usage(format!(
        "{flag} watches or breaks what a software GPU executes; {device} shows and takes \
         neither: use --device soft:gfx1201, or leave {flag} out"
    ))
}

/// The script of `--faults`: entries separated by commas or lines; `#` begins a comment.
pub(super) fn script(path: &Path) -> anyhow::Result<FaultScript> {
    let bytes = input::read_up_to(path, MAX_SCRIPT)?;
    let shown = path.display().to_string();
    let bad = |what: String| CliError::Script {
        path: shown.clone(),
        what,
    };
    let text = String::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
    let entries = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    let script = entries.collect::<Vec<_>>().join(",");
    Ok(script.parse().map_err(|error| bad(format!("{error}")))?)
}

/// Arms the script; its events are counted from the opening of the device on.
pub(super) fn arm(
    args: &RunArgs,
    opened: &OpenedDevice,
    script: Option<&FaultScript>,
) -> anyhow::Result<()> {
    let Some(flag) = flag(args) else {
        return Ok(());
    };
    let Some(gpu) = &opened.soft else {
        return Err(refusal(flag, opened.spec).into());
    };
    if let Some(script) = script {
        gpu.arm_faults(script);
    }
    Ok(())
}

/// Tells strict mode what the plan declares.
pub(super) fn declare(args: &RunArgs, session: &Session) {
    if let (Some(gpu), true) = (&session.opened().soft, args.strict.is_some()) {
        gpu.declare(declarations(session.instance()));
    }
}

/// What strict mode has found so far, also printed on stderr; `None` without it.
pub(super) fn findings(args: &RunArgs, opened: &OpenedDevice) -> anyhow::Result<Option<Findings>> {
    let (Some(gpu), true) = (&opened.soft, args.strict.is_some()) else {
        return Ok(None);
    };
    let Reports { reports, dropped } = gpu.take_reports();
    for report in &reports {
        output::note(&report.to_string());
    }
    if dropped > 0 {
        output::note(&format!("{dropped} more different reports were not kept"));
    }
    let parsed = reports
        .iter()
        .map(|report| serde_json::from_str(&report.json()).context("a report as JSON"));
    Ok(Some(Findings {
        reports: parsed.collect::<Result<_, _>>()?,
        dropped,
    }))
}

/// The faults that were injected, also printed on stderr; `None` without a script.
pub(super) fn injected(args: &RunArgs, opened: &OpenedDevice) -> Option<Vec<String>> {
    let gpu = opened.soft.as_ref().filter(|_| args.faults.is_some())?;
    let faults = gpu.injected_faults().into_iter();
    let lines: Vec<String> = faults
        .map(|injected| format!("{}: {}", injected.fault, injected.what))
        .collect();
    for line in &lines {
        output::note(&format!("injected {line}"));
    }
    Some(lines)
}
