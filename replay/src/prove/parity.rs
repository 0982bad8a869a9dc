//! Names the first difference between two states of a plan's buffers: step, buffer, element, ULP.

use refrain_kernels::Dtype;
use refrain_planner::plan::{BufferKind, Plan};
use refrain_recorder::BufferState;
use std::fmt;

/// Where two runs of the same token part.
#[derive(Debug, Clone, PartialEq)]
pub struct Parting {
    /// The first step of the token that may write one of the differing bytes; `None` where none may.
    pub step: Option<String>,
    /// Buffer of the first differing byte.
    pub buffer: String,
    /// Index of the element there.
    pub element: u64,
    /// Bytes of the element in the two states.
    pub values: (Vec<u8>, Vec<u8>),
    /// Distance in units of the last place, where the elements are floats.
    pub ulp: Option<u64>,
    /// Differing bytes in all buffers.
    pub bytes: u64,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.as_deref().unwrap_or("none may write there");
        let (first, second) = &self.values;
        write!(
            f,
            "step {step}, buffer {}, element {}: {} and {}",
            self.buffer,
            self.element,
            hex_le(first),
            hex_le(second)
        )?;
        if let Some(ulp) = self.ulp {
            write!(f, " ({ulp} ULP)")?;
        }
        write!(f, "; {} bytes differ in all", self.bytes)
    }
}

fn hex_le(bytes: &[u8]) -> String {
    let digits: String = bytes
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{digits}h")
}

/// Bytes of an element of a buffer and whether it is a float. Weights are compared by bytes.
fn element_of(plan: &Plan, kind: BufferKind) -> (usize, bool) {
    match kind {
        BufferKind::Kv if plan.options.kv_dtype == Dtype::F16 => (2, true),
        BufferKind::Kv | BufferKind::State | BufferKind::Scratch | BufferKind::HandOff => (4, true),
        BufferKind::Control | BufferKind::Prompt => (4, false),
        BufferKind::TokenRing => (8, false),
        BufferKind::Weights | BufferKind::SpilledWeights | BufferKind::Constant => (1, false),
    }
}

/// The first difference of two states of all of a plan's buffers, without those of kinds that are
/// skipped.
pub(super) fn parting(
    plan: &Plan,
    first: &[BufferState],
    second: &[BufferState],
    skip: &[BufferKind],
) -> Option<Parting> {
    let mut differing: Vec<(u32, u64)> = Vec::new();
    let mut bytes = 0;
    let buffers = (0u32..).zip(&plan.buffers).zip(first.iter().zip(second));
    for ((id, buffer), (a, b)) in buffers {
        if skip.contains(&buffer.kind) || a.bytes == b.bytes {
            continue;
        }
        let pairs = a.bytes.iter().zip(&b.bytes).enumerate();
        let places = pairs.filter(|(_, (x, y))| x != y).map(|(at, _)| at as u64);
        for at in places {
            bytes += 1;
            // One place per element and buffer row is enough to find the writer.
            if differing.len() < PLACES {
                differing.push((id, at));
            }
        }
    }
    let &(id, at) = differing.first()?;
    let (buffer, a, b) = (
        plan.buffers.get(id as usize)?,
        first.get(id as usize)?,
        second.get(id as usize)?,
    );
    let (size, float) = element_of(plan, buffer.kind);
    let start = at as usize / size * size;
    let of = |state: &BufferState| {
        let end = state.bytes.len().min(start + size);
        state.bytes.get(start..end).unwrap_or_default().to_vec()
    };
    let values = (of(a), of(b));
    let ulp = if float {
        ulp(&values.0, &values.1)
    } else {
        None
    };
    Some(Parting {
        step: writer(plan, &differing),
        buffer: buffer.name.clone(),
        element: (start / size) as u64,
        values,
        ulp,
        bytes,
    })
}

/// Differing places that are kept to find who may have written them.
const PLACES: usize = 1 << 16;

/// The first step that may write one of the places.
fn writer(plan: &Plan, places: &[(u32, u64)]) -> Option<String> {
    let step = plan.steps.iter().find(|step| {
        let (_, mut writes) = step.effects();
        writes.any(|region| {
            let (start, end) = region.bound();
            let inside =
                |place: &(u32, u64)| place.0 == region.buffer && (start..end).contains(&place.1);
            places.iter().any(inside)
        })
    });
    step.map(|step| step.name.clone())
}

/// Distance of two IEEE floats of the same width as places on the number line.
fn ulp(a: &[u8], b: &[u8]) -> Option<u64> {
    let place = |bytes: &[u8]| {
        let (sign, rest) = match *bytes {
            [x, y] => (y >> 7, i64::from(u16::from_le_bytes([x, y]) & 0x7fff)),
            [x, y, z, w] => (
                w >> 7,
                i64::from(u32::from_le_bytes([x, y, z, w]) & 0x7fff_ffff),
            ),
            _ => return None,
        };
        Some(if sign == 0 { rest } else { -rest })
    };
    Some(place(a)?.abs_diff(place(b)?))
}

#[cfg(test)]
mod tests {
    use super::{hex_le, ulp};

    #[test]
    fn distances_cross_zero_and_widths_are_kept_apart() {
        let f = |value: f32| value.to_le_bytes().to_vec();
        let next = f(f32::from_bits(1.0_f32.to_bits() + 3));
        assert_eq!(ulp(&f(1.0), &next), Some(3));
        assert_eq!(ulp(&f(f32::from_bits(2)), &f(-f32::from_bits(1))), Some(3));
        assert_eq!(ulp(&f(0.0), &f(-0.0)), Some(0));
        assert_eq!(ulp(&[0, 0x3c], &[2, 0x3c]), Some(2));
        assert_eq!(ulp(&[1], &[2]), None);
        assert_eq!(hex_le(&f(1.0)), "3f800000h");
    }
}
