//! What the tapes of a plan must look like, from the plan and the catalog alone.

use crate::reconcile::MIN_POSITIONS;
use crate::tape::{Place, Pointer, TapeLaunch};
use refrain_planner::identity::Identity;
use refrain_planner::plan::{Arg, Digest, KernargError, Plan, StepBody};

/// One argument's bytes in the kernarg segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name in the catalog.
    pub name: String,
    /// Byte offset.
    pub at: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// The launch that a step must have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedLaunch {
    /// Index of the step.
    pub step: u32,
    /// Its name.
    pub name: String,
    /// The launch; pointer bytes of the kernarg segment are zero, as on tapes.
    pub launch: TapeLaunch,
    /// LDS bytes of the dispatch packet: static and dynamic.
    pub packet_lds: u32,
    /// Arguments by offset.
    pub arguments: Vec<Argument>,
}

impl ExpectedLaunch {
    /// Name and first byte of the argument that owns a kernarg byte; `padding` owns the rest.
    pub fn argument(&self, offset: u32) -> (String, u32) {
        let owner = self
            .arguments
            .iter()
            .find(|a| (a.at..a.at + a.bytes).contains(&offset));
        owner.map_or_else(
            || ("padding".to_owned(), offset),
            |a| (a.name.clone(), a.at),
        )
    }
}

/// Everything that tapes are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The plan's sequence digest.
    pub sequence: Digest,
    /// Buffer names by index.
    pub buffers: Vec<String>,
    /// One launch per step, in order.
    pub launches: Vec<ExpectedLaunch>,
    /// Distinct positions that must be recorded: [`MIN_POSITIONS`], or all of a shorter context.
    pub positions: usize,
}

impl Expectation {
    /// Derives the expectation from a plan.
    ///
    /// # Errors
    /// [`KernargError`], which a checked plan does not cause.
    pub fn of(tables: &Plan) -> Result<Self, KernargError> {
        let mut launches = Vec::with_capacity(tables.steps.len());
        for (index, step) in tables.steps.iter().enumerate() {
            let StepBody::Launch(launch) = &step.body;
            let Some(kernel) = tables.kernels.get(launch.kernel as usize) else {
                continue;
            };
            let slots = tables.kernarg_layout(index as u32)?;
            let mut kernarg = vec![0; kernel.kernarg_bytes as usize];
            // Base 0 for every buffer: pointer fields are zeroed below in any case.
            tables.write_kernargs(index as u32, &|_| 0, &mut kernarg)?;
            let mut pointers = Vec::new();
            for slot in &slots {
                let Some(place) = place_of(tables, &slot.arg) else {
                    continue;
                };
                pointers.push(Pointer {
                    at: slot.offset,
                    place,
                });
                let at = slot.offset as usize;
                if let Some(bytes) = kernarg.get_mut(at..at + slot.bytes as usize) {
                    bytes.fill(0);
                }
            }
            let arguments = slots.iter().map(|slot| Argument {
                name: slot.name.to_owned(),
                at: slot.offset,
                bytes: slot.bytes,
            });
            let arguments = arguments.collect();
            let launch = TapeLaunch {
                symbol: kernel.symbol.clone(),
                object: kernel.object,
                grid: launch.grid,
                block: kernel.block,
                lds: 0,
                kernarg,
                pointers,
            };
            let name = step.name.clone();
            launches.push(ExpectedLaunch {
                step: index as u32,
                name,
                packet_lds: kernel.lds_bytes.saturating_add(launch.lds),
                launch,
                arguments,
            });
        }
        let buffers = tables
            .buffers
            .iter()
            .map(|buffer| buffer.name.clone())
            .collect();
        Ok(Self {
            sequence: Identity::of(tables).sequence.0,
            buffers,
            launches,
            positions: MIN_POSITIONS.min(tables.options.bucket as usize),
        })
    }

    /// A place with the buffer's name.
    pub fn place(&self, place: Place) -> String {
        match place {
            Place::Region { buffer, offset } => match self.buffers.get(buffer as usize) {
                Some(name) => format!("{name} + {offset:#x}"),
                None => place.to_string(),
            },
            _ => place.to_string(),
        }
    }
}

fn place_of(plan: &Plan, arg: &Arg) -> Option<Place> {
    match *arg {
        Arg::Region { buffer, offset } => Some(Place::Region { buffer, offset }),
        Arg::Imm(_) => None,
        Arg::WordAddr { offset } => {
            let buffer = plan.control_buffer()?;
            Some(Place::Region {
                buffer,
                offset: u64::from(offset),
            })
        }
    }
}
