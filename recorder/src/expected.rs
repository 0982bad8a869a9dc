//! What the tapes of a plan must look like, from the plan and the catalog alone.

use crate::reconcile::MIN_POSITIONS;
use crate::tape::{Direction, Place, Pointer, TapeLaunch};
use refrain_planner::identity::Identity;
use refrain_planner::plan::{
    Arg, At, Digest, HostStep, KernargError, Launch, Plan, StepId, Transfer,
};

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

/// A copy that a step of the host must have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedCopy {
    /// Index of the step.
    pub step: StepId,
    /// Its name.
    pub name: String,
    /// Launches of the token before it.
    pub after: usize,
    /// First byte written.
    pub dst: Place,
    /// First byte read.
    pub src: Place,
    /// Length in bytes.
    pub bytes: u64,
    /// Direction.
    pub direction: Direction,
}

/// Everything that tapes are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The plan's sequence digest.
    pub sequence: Digest,
    /// Buffer names by index.
    pub buffers: Vec<String>,
    /// Every launch, in order.
    pub launches: Vec<ExpectedLaunch>,
    /// Every copy, in order.
    pub copies: Vec<ExpectedCopy>,
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
        let mut copies = Vec::new();
        for (index, step) in (0..).zip(&tables.steps) {
            let host = step.body.host();
            let named = (index, step.name.as_str());
            let before = launches.len();
            copies.extend(host.into_iter().flat_map(|host| down(host, named, before)));
            for launch in step.body.launches() {
                launches.extend(expected(tables, index, &step.name, launch)?);
            }
            let before = launches.len();
            copies.extend(host.into_iter().flat_map(|host| up(host, named, before)));
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
            copies,
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

/// The launch of a step as a tape must show it; `None` for a kernel that the plan lacks.
fn expected(
    tables: &Plan,
    step: StepId,
    name: &str,
    launch: &Launch,
) -> Result<Option<ExpectedLaunch>, KernargError> {
    let Some(kernel) = tables.kernels.get(launch.kernel as usize) else {
        return Ok(None);
    };
    let slots = tables.kernarg_layout_of(step, launch)?;
    let mut kernarg = vec![0; kernel.kernarg_bytes as usize];
    // Base 0 for every buffer: pointer fields are zeroed below in any case.
    tables.write_kernargs_of(step, launch, &|_| 0, &mut kernarg)?;
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
    Ok(Some(ExpectedLaunch {
        step,
        name: name.to_owned(),
        packet_lds: kernel.lds_bytes.saturating_add(launch.lds),
        launch,
        arguments,
    }))
}

fn down(host: &HostStep, step: (StepId, &str), after: usize) -> impl Iterator<Item = ExpectedCopy> {
    host.down
        .iter()
        .map(move |row| copy(row, step, after, Direction::FromDevice))
}

fn up(host: &HostStep, step: (StepId, &str), after: usize) -> impl Iterator<Item = ExpectedCopy> {
    host.up
        .iter()
        .map(move |row| copy(row, step, after, Direction::ToDevice))
}

fn copy(
    row: &Transfer,
    (step, name): (StepId, &str),
    after: usize,
    direction: Direction,
) -> ExpectedCopy {
    let place = |At { buffer, offset }| Place::Region { buffer, offset };
    ExpectedCopy {
        step,
        name: name.to_owned(),
        after,
        dst: place(row.to),
        src: place(row.from),
        bytes: row.bytes,
        direction,
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
