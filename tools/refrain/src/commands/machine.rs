//! `refrain machine`: built-in profiles, one profile, or this machine's.

use crate::cli::{MachineCommand, ProbeArgs};
use crate::{host, output};
use refrain_planner::durable;
use refrain_planner::machine::{LinkKind, Machine};
use refrain_replay::OpenedDevice;
use std::fmt::Write;

pub(super) fn run(command: &MachineCommand) -> anyhow::Result<()> {
    let text = match command {
        MachineCommand::List => list()?,
        MachineCommand::Show { machine } => Machine::load(machine)?.to_toml(),
        MachineCommand::Probe(args) => return probe(args),
    };
    Ok(output::result(&text)?)
}

fn list() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in Machine::built_in_names() {
        let machine = Machine::load(name)?;
        writeln!(
            text,
            "{name:<8} {}: {} CUs, {} bytes, {}",
            machine.card,
            machine.compute_units,
            machine.vram_bytes,
            machine.link.kind.name()
        )?;
    }
    Ok(text)
}

fn probe(args: &ProbeArgs) -> anyhow::Result<()> {
    let opened = super::open_device(&args.device, None)?;
    let mut machine = device(&opened)?;
    args.name.clone_into(&mut machine.name);
    let facts = host::facts();
    machine.provenance.insert("host".to_owned(), facts.source);
    machine.host = facts.host;
    let text = machine.to_toml();
    // What was written must be read again: a name or a number out of range is refused here.
    Machine::parse("the probed machine", &text)?;
    match &args.output {
        Some(path) => Ok(durable::write(path, text.as_bytes())?),
        None => Ok(output::result(&text)?),
    }
}

/// Device facts: those of the runtime, and of the reference card of its target for what no runtime
/// says. A software GPU has the reference card's.
fn device(opened: &OpenedDevice) -> anyhow::Result<Machine> {
    let info = opened.device.info();
    let mut machine = Machine::load(&info.target)?;
    let reference = machine.name.clone();
    if opened.soft.is_some() {
        for source in machine.provenance.values_mut() {
            *source = format!("no card here, reference card {reference}: {source}");
        }
        return Ok(machine);
    }
    info.name.clone_into(&mut machine.card);
    machine.wave_size = info.wave_size;
    machine.compute_units = info.compute_units;
    machine.vram_bytes = info.vram_bytes;
    for fact in ["target", "wave_size", "compute_units", "vram_bytes"] {
        let source = format!("probed: HIP and HSA runtime {}", info.runtime_version);
        machine.provenance.insert(fact.to_owned(), source);
    }
    for fact in ["lds_bytes_per_group", "vram_mb_per_s", "unified_memory"] {
        if let Some(source) = machine.provenance.get_mut(fact) {
            *source = format!("not probed, reference card {reference}: {source}");
        }
    }
    if machine.link.kind != LinkKind::Unified {
        let link = host::pcie_link(&info.pci);
        let source = match &link {
            Some(_) => "probed: sysfs current_link_speed and current_link_width of the device; a \
                        switch on the card may hide a slower slot"
                .to_owned(),
            None => format!("not probed, sysfs does not say: reference card {reference}"),
        };
        machine.link = link.unwrap_or(machine.link);
        machine.provenance.insert("link".to_owned(), source);
    }
    Ok(machine)
}
