//! Steps of the host: matrices in pinned memory, rows in range, places inside their buffers, every
//! byte that crosses the link in a transfer, and launches beside them that meet nothing of theirs.

use super::error::{CheckError, Place};
use crate::placement::host_multiplies;
use crate::plan::{
    At, BufferKind, HostAdd, HostGemv, HostStep, Plan, Region, Step, StepBody, StepId, Tier,
    Transfer,
};

/// Checks what the host does in a step; launches have been checked.
pub(super) fn check(plan: &Plan, id: StepId, step: &Step) -> Result<(), CheckError> {
    let Some(host) = step.body.host() else {
        return Ok(());
    };
    let checker = Checker { plan, id, step };
    if host.parts.is_empty() {
        return Err(checker.wrong("products", 0, "at least one"));
    }
    for part in &host.parts {
        checker.product(part)?;
    }
    let rows = [
        ("copy down", &host.down, true),
        ("copy up", &host.up, false),
    ];
    for (what, list, down) in rows {
        for transfer in list {
            checker.transfer(what, transfer, down)?;
        }
    }
    let (reads, writes) = host.effects(&plan.model.tensors);
    if (&host.reads, &host.writes) != (&reads, &writes) {
        let found = format!("{} and {}", host.reads.len(), host.writes.len());
        return Err(checker.wrong(
            "declared reads and writes",
            found,
            "those of its copies and products",
        ));
    }
    checker.handed_over(host)?;
    match &step.body {
        StepBody::Split(split) => checker.beside(&split.launches, host),
        StepBody::Cpu(_) | StepBody::Launch(_) => Ok(()),
    }
}

struct Checker<'a> {
    plan: &'a Plan,
    id: StepId,
    step: &'a Step,
}

impl Checker<'_> {
    fn wrong(
        &self,
        what: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> CheckError {
        let place = Place::Step(self.id, self.step.name.clone());
        CheckError::mismatch(place, what, found, expected)
    }

    /// Demands `bytes` bytes at a place of a buffer of this kind, aligned for vector loads of f32.
    fn inside(
        &self,
        what: &'static str,
        at: At,
        bytes: u64,
        kind: impl Fn(BufferKind) -> bool,
    ) -> Result<(), CheckError> {
        let Some(buffer) = self.plan.buffers.get(at.buffer as usize) else {
            let expected = format!("below {}", self.plan.buffers.len());
            return Err(self.wrong(what, at.buffer, expected));
        };
        if !kind(buffer.kind) {
            let found = format!("in {}", buffer.name);
            return Err(self.wrong(what, found, "in a buffer of another kind"));
        }
        let end = at.offset.checked_add(bytes);
        if bytes == 0 || !at.offset.is_multiple_of(4) || end.is_none_or(|end| end > buffer.bytes) {
            let found = format!("{bytes} bytes at {}", at.offset);
            let expected = format!("some, at a multiple of 4, within {} bytes", buffer.bytes);
            return Err(self.wrong(what, found, expected));
        }
        Ok(())
    }

    fn product(&self, part: &HostGemv) -> Result<(), CheckError> {
        let tensors = &self.plan.model.tensors;
        let Some(tensor) = tensors.get(part.tensor as usize) else {
            let expected = format!("below {}", tensors.len());
            return Err(self.wrong("tensor of a product", part.tensor, expected));
        };
        let kind = self
            .plan
            .buffers
            .get(tensor.buffer as usize)
            .map(|b| b.kind);
        if kind != Some(BufferKind::SpilledWeights) {
            let found = format!("{} in {kind:?}", tensor.name);
            return Err(self.wrong("matrix of a product", found, "in spilled weights"));
        }
        // `tables` found the number to be at most the layers.
        let layers = self.plan.model.geometry.layers;
        let prefix = layers.saturating_sub(self.plan.options.gpu_layers);
        if self.step.layer.is_none_or(|layer| layer >= prefix) {
            let found = format!("{:?}", self.step.layer);
            let expected = format!("below {prefix}, the spilled ones");
            return Err(self.wrong("layer of a step of the host", found, expected));
        }
        if !host_multiplies(tensor.dtype) {
            let found = format!("{} {}", tensor.name, tensor.dtype);
            return Err(self.wrong(
                "matrix of a product",
                found,
                "of a type that is not rotated",
            ));
        }
        if part.first >= part.end || part.end > tensor.rows {
            let found = format!("{}..{}", part.first, part.end);
            let expected = format!("some of the {} rows of {}", tensor.rows, tensor.name);
            return Err(self.wrong("rows of a product", found, expected));
        }
        let hand_off = |kind| kind == BufferKind::HandOff;
        self.inside(
            "vector of a product",
            part.x,
            HostGemv::x_bytes(tensor),
            hand_off,
        )?;
        self.inside("result of a product", part.y, part.y_bytes(), hand_off)?;
        match part.add {
            HostAdd::Nothing => Ok(()),
            HostAdd::Rows(at) => self.inside("addend of a product", at, part.y_bytes(), |kind| {
                matches!(kind, BufferKind::HandOff | BufferKind::SpilledWeights)
            }),
        }
    }

    fn transfer(&self, what: &'static str, row: &Transfer, down: bool) -> Result<(), CheckError> {
        let device = |kind: BufferKind| kind == BufferKind::Scratch && kind.tier() == Tier::Device;
        let hand_off = |kind| kind == BufferKind::HandOff;
        let (device_end, host_end) = match down {
            true => (row.from, row.to),
            false => (row.to, row.from),
        };
        self.inside(what, device_end, row.bytes, device)?;
        self.inside(what, host_end, row.bytes, hand_off)
    }

    /// What a product reads of the hand-off buffer was copied down, what is copied up was a result, and
    /// no result lies over what another product of the step reads or writes.
    fn handed_over(&self, host: &HostStep) -> Result<(), CheckError> {
        let covered = |at: At, bytes: u64, mut by: &mut dyn Iterator<Item = (At, u64)>| {
            let inside = |(place, length): (At, u64)| {
                place.buffer == at.buffer
                    && place.offset <= at.offset
                    && at.offset + bytes <= place.offset + length
            };
            Iterator::any(&mut by, inside)
        };
        let mut sources = Vec::new();
        for part in &host.parts {
            let tensor = self.plan.model.tensors.get(part.tensor as usize);
            let x_bytes = tensor.map_or(0, HostGemv::x_bytes);
            sources.push((part.x, x_bytes));
            if let HostAdd::Rows(at) = part.add
                && self.plan.buffers.get(at.buffer as usize).map(|b| b.kind)
                    == Some(BufferKind::HandOff)
            {
                sources.push((at, part.y_bytes()));
            }
        }
        for (at, bytes) in &sources {
            let mut down = host.down.iter().map(|row| (row.to, row.bytes));
            if !covered(*at, *bytes, &mut down) {
                let found = format!("{bytes} bytes at {}", at.offset);
                return Err(self.wrong("source of a product", found, "copied down by the step"));
            }
        }
        let results: Vec<(At, u64)> = host.parts.iter().map(|p| (p.y, p.y_bytes())).collect();
        for row in &host.up {
            if !covered(row.from, row.bytes, &mut results.iter().copied()) {
                let found = format!("{} bytes at {}", row.bytes, row.from.offset);
                return Err(self.wrong("copy up", found, "a result of the step"));
            }
        }
        for (index, (at, bytes)) in results.iter().enumerate() {
            let others = results.iter().skip(index + 1).chain(&sources);
            let mine = at.region(*bytes);
            if others
                .clone()
                .any(|(other, length)| mine.may_overlap(&other.region(*length)))
            {
                let found = format!("{bytes} bytes at {}", at.offset);
                return Err(self.wrong("result of a product", found, "apart from all others"));
            }
        }
        Ok(())
    }

    /// Launches run beside each other and beside the host.
    fn beside(&self, launches: &[crate::plan::Launch], host: &HostStep) -> Result<(), CheckError> {
        if launches.is_empty() {
            return Err(self.wrong("launches of a split step", 0, "at least one"));
        }
        let meets = |writes: &[Region], others: &[Region]| {
            writes
                .iter()
                .any(|a| others.iter().any(|b| a.may_overlap(b)))
        };
        for (index, launch) in launches.iter().enumerate() {
            let later = launches.iter().skip(index + 1);
            let conflict = later.clone().any(|other| {
                meets(&launch.writes, &other.reads)
                    || meets(&launch.writes, &other.writes)
                    || meets(&other.writes, &launch.reads)
            });
            let with_host = meets(&launch.writes, &host.reads)
                || meets(&launch.writes, &host.writes)
                || meets(&host.writes, &launch.reads);
            if conflict || with_host {
                let found = format!("launch {index} meets what runs beside it");
                return Err(self.wrong("launches of a split step", found, "apart"));
            }
        }
        Ok(())
    }
}
