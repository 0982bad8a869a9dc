//! Runs an indirect buffer: keeps the register file, turns DISPATCH_DIRECT into launches after
//! checking every register that it relies on, and waits where the buffer says so. Packets are read
//! by `refrain_packet::decode`; which launches overlap is `batch`'s business.

use super::access;
use super::batch::{Batch, Origin, Shape, over_budget};
use super::fault::{Cause, Pm4Error, Pm4Reason, QueueFault};
use super::inject::{self, Place, Start};
use super::record::Record;
use super::registers::Registers;
use crate::gpu::{Shared, count};
use crate::memory::Access;
use crate::object::Kernel;
use crate::strict::{Accesses, Facts, Site};
use refrain_packet::decode::{Located, packets};
use refrain_packet::packet::{AcquireMem, Packet};
use refrain_packet::tables::gcr::{self, GCR_FIELDS};
use refrain_packet::tables::opcodes::{event, opcode};
use refrain_packet::tables::registers::{INITIATOR_FIELDS, initiator, reg, rsrc1, rsrc2};
use refrain_packet::tables::{Field, reserved_mask};
use refrain_packet::target::Generation;
use std::sync::Arc;

/// DISPATCH_INITIATOR bits that are executed; ORDER_MODE only affects scheduling.
const INITIATOR_EXECUTED: u32 = initiator::COMPUTE_SHADER_EN
    | initiator::FORCE_START_AT_000
    | initiator::USE_THREAD_DIMENSIONS
    | initiator::ORDER_MODE
    | initiator::CS_W32_EN;

/// The vendor packet that an indirect buffer belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub queue: u64,
    pub packet: u64,
    pub packet_type: &'static str,
}

/// An indirect buffer being run.
pub(crate) struct Run<'a> {
    pub shared: &'a Shared,
    pub registers: &'a mut Registers,
    pub batch: &'a mut Batch,
    pub record: &'a mut Record,
    pub owner: Owner,
}

/// The last dispatch that nothing has waited for.
#[derive(Debug)]
struct InFlight {
    dword: u32,
    kernel: Arc<Kernel>,
    /// Where a RELEASE_MEM behind it writes.
    released: Option<u64>,
}

/// How far a buffer has come.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// Dword of the next packet.
    dword: u32,
    in_flight: Option<InFlight>,
}

/// What a packet did.
enum Step {
    Nothing,
    Launched(Arc<Kernel>),
    Waited,
    /// RELEASE_MEM to this address.
    Released(u64),
    /// WAIT_REG_MEM of this address passed with nothing in flight.
    Passed(u64),
    /// WAIT_REG_MEM does not pass.
    Blocked,
    Hung,
}

/// How an indirect buffer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All of it ran.
    Whole,
    /// One of its launches never ends.
    Hung,
    /// It waits for memory; run it again later, from its position on.
    Blocked,
}

impl Run<'_> {
    /// Runs all packets from `position` on. At the end no wave of this buffer is in flight.
    pub(crate) fn run(
        &mut self,
        words: &[u32],
        position: &mut Position,
    ) -> Result<Ended, Box<QueueFault>> {
        if position.dword == 0 {
            self.registers.begin();
        }
        for item in packets(words) {
            let located = item.map_err(|error| self.fault(error.into(), None))?;
            if located.offset < position.dword {
                continue;
            }
            position.dword = located.offset;
            match self.packet(&located)? {
                Step::Nothing => {}
                Step::Launched(kernel) => {
                    position.in_flight = Some(InFlight {
                        dword: located.offset,
                        kernel,
                        released: None,
                    })
                }
                Step::Waited => position.in_flight = None,
                Step::Released(address) => {
                    if let Some(last) = &mut position.in_flight {
                        last.released = Some(address);
                    }
                }
                Step::Passed(address) => {
                    // A timeline: what it waited for was written behind the dispatch.
                    let last = position.in_flight.take();
                    position.in_flight = last.filter(|last| last.released != Some(address));
                }
                Step::Blocked => return Ok(Ended::Blocked),
                Step::Hung => {
                    self.batch.run(self.shared, self.owner.queue)?;
                    return Ok(Ended::Hung);
                }
            }
        }
        if let Some(InFlight { dword, kernel, .. }) = position.in_flight.take() {
            let end = words.len() as u32;
            let reason = Pm4Reason::MissingWait {
                dispatch: dword,
                kernel: Arc::clone(&kernel.name),
            };
            let error = Pm4Error::Packet {
                dword: end,
                packet: "end of the IB",
                reason,
            };
            return Err(self.fault(error, Some(&kernel)));
        }
        count(&self.shared.tally.indirect_buffers, 1);
        Ok(Ended::Whole)
    }

    fn fault(&self, error: Pm4Error, kernel: Option<&Kernel>) -> Box<QueueFault> {
        Box::new(QueueFault {
            queue: self.owner.queue,
            packet: self.owner.packet,
            packet_type: self.owner.packet_type,
            kernel: kernel.map(|kernel| Arc::clone(&kernel.name)),
            code: error.code(),
            cause: Cause::Pm4(error),
        })
    }

    fn packet(&mut self, located: &Located<'_>) -> Result<Step, Box<QueueFault>> {
        if located.packet == Packet::Filler {
            return Ok(Step::Nothing);
        }
        let target = self.registers.gfx();
        let code = located.packet.opcode().unwrap_or_default();
        let row = opcode(code).filter(|row| row.gens.has(target.generation()));
        let packet = row.map_or("unknown opcode", |row| row.name);
        let dword = located.offset;
        let wrong = |reason| Pm4Error::Packet {
            dword,
            packet,
            reason,
        };
        if row.is_none() {
            let reason = Pm4Reason::Opcode {
                opcode: code,
                target: target.name(),
            };
            return Err(self.fault(wrong(reason), None));
        }
        let done = match located.packet {
            Packet::Nop { .. } => Ok(Step::Nothing),
            Packet::SetShReg {
                offset,
                vmid_shift: 0,
                index: 0,
                values,
            } => self
                .registers
                .write(u32::from(offset), values)
                .map(|()| Step::Nothing),
            Packet::SetShReg {
                vmid_shift, index, ..
            } => Err(Pm4Reason::ShTarget { vmid_shift, index }),
            Packet::DispatchDirect { dim, initiator } => {
                return self.dispatch(dim, initiator, dword, &wrong);
            }
            Packet::EventWrite { control } if located.packet.is_wait() => {
                debug_assert_eq!(control & 0x3f, 7, "CS_PARTIAL_FLUSH is event 7");
                self.batch.run(self.shared, self.owner.queue)?;
                if let Some(strict) = &self.shared.strict {
                    strict.wait(self.owner.queue);
                }
                Ok(Step::Waited)
            }
            Packet::EventWrite { control } => Err(bad_event(control)),
            Packet::AcquireMem(acquire) => check_acquire(&acquire, self.registers).map(|()| {
                // Memory is coherent; which lines it drops matters to strict mode.
                count(&self.shared.tally.acquires, 1);
                if let Some(strict) = &self.shared.strict {
                    strict.acquire_mem(self.site(located, packet), acquire.gcr);
                }
                Step::Nothing
            }),
            _ => self.access(located, packet),
        };
        // The fault of a launch that a wait found is its own, not this packet's.
        if let Ok(Step::Blocked) = done {
            return self.wait_again(located, packet, &wrong);
        }
        done.map_err(|reason| self.fault(wrong(reason), None))
    }

    fn site(&self, located: &Located<'_>, name: &'static str) -> Site {
        Site {
            queue: self.owner.queue,
            packet: self.owner.packet,
            dword: located.offset,
            name,
        }
    }

    /// A packet by which the processor touches memory itself.
    fn access(&mut self, located: &Located<'_>, name: &'static str) -> Result<Step, Pm4Reason> {
        let site = self.site(located, name);
        let (space, generation) = (&self.shared.memory, self.registers.gfx().generation());
        let strict = self.shared.strict.as_ref();
        let told = |accesses: Accesses| {
            if let Some(strict) = strict {
                strict.model().processor(site, &accesses);
            }
            Step::Nothing
        };
        match located.packet {
            Packet::WriteData {
                control,
                address,
                data,
            } => access::write_data(space, control, address, data).map(told),
            Packet::CopyData { control, src, dst } => {
                access::copy_data(space, control, src, dst).map(told)
            }
            Packet::ReleaseMem(ref packet) => {
                let Some(release) = access::release_mem(space, generation, packet)? else {
                    return Ok(Step::Nothing);
                };
                let origin = Origin {
                    packet: self.owner.packet,
                    packet_type: self.owner.packet_type,
                    signal: 0,
                };
                let watched = strict.map(|strict| {
                    let span = (release.address, release.bytes);
                    strict.model().release_mem(site, span, packet.control)
                });
                self.batch.release(release, origin, watched);
                Ok(Step::Released(release.address))
            }
            Packet::WaitRegMem(ref packet) => {
                let met = access::wait_reg_mem(space, packet)?;
                if let Some(strict) = strict.filter(|_| met) {
                    let meets = |value| access::meets(packet, value);
                    strict.model().wait_mem(site, packet.address, &meets);
                }
                Ok(match (met, self.batch.is_idle()) {
                    (true, true) => Step::Passed(packet.address),
                    // Memory may have met it before what is in flight writes there.
                    (true, false) => Step::Nothing,
                    (false, _) => Step::Blocked,
                })
            }
            _ => Err(Pm4Reason::NotExecuted),
        }
    }

    /// Lets everything in flight end and looks at a wait once more.
    fn wait_again(
        &mut self,
        located: &Located<'_>,
        name: &'static str,
        wrong: &dyn Fn(Pm4Reason) -> Pm4Error,
    ) -> Result<Step, Box<QueueFault>> {
        self.batch.run(self.shared, self.owner.queue)?;
        self.access(located, name)
            .map_err(|reason| self.fault(wrong(reason), None))
    }

    fn dispatch(
        &mut self,
        dims: [u32; 3],
        word: u32,
        dword: u32,
        wrong: &dyn Fn(Pm4Reason) -> Pm4Error,
    ) -> Result<Step, Box<QueueFault>> {
        let kernel = self
            .kernel(word)
            .map_err(|reason| self.fault(wrong(reason), None))?;
        let launch = self.launch(&kernel, dims, word);
        let (shape, kernarg_va) =
            launch.map_err(|reason| self.fault(wrong(reason), Some(&kernel)))?;
        let origin = Origin {
            packet: self.owner.packet,
            packet_type: self.owner.packet_type,
            signal: 0,
        };
        let place = Place {
            queue: self.owner.queue,
            packet: self.owner.packet,
            packet_type: self.owner.packet_type,
            kernel: Some(&kernel.name),
        };
        let start = inject::launch(self.shared, place, kernarg_va, kernel.kernarg_size())?;
        self.record
            .dispatch(self.shared, &kernel, &shape, kernarg_va);
        if start == Start::Hang {
            return Ok(Step::Hung);
        }
        let watched = self.shared.strict.as_ref().map(|strict| {
            let facts = Facts {
                queue: self.owner.queue,
                packet: self.owner.packet,
                dword: Some(dword),
                rsrc3: shape.rsrc[2],
                release: false,
                signal: 0,
            };
            strict.launch(&kernel, facts)
        });
        self.batch.push(&kernel, shape, origin, watched);
        if self.batch.is_full() {
            self.batch.run(self.shared, self.owner.queue)?;
        }
        Ok(Step::Launched(kernel))
    }

    /// Checks the initiator and finds the kernel that PGM names.
    fn kernel(&self, word: u32) -> Result<Arc<Kernel>, Pm4Reason> {
        check_initiator(word)?;
        let lo = u64::from(self.registers.read(reg::PGM_LO)?);
        let hi = u64::from(self.registers.read(reg::PGM_HI)?);
        let entry = lo << 8 | hi << 40;
        let kernel = self
            .shared
            .registry
            .by_entry(entry)
            .ok_or(Pm4Reason::Program { entry })?;
        match &kernel.refusal {
            None => Ok(kernel),
            Some(reason) => Err(Pm4Reason::Refused {
                kernel: Arc::clone(&kernel.name),
                reason: reason.clone(),
            }),
        }
    }

    /// Everything that the dispatch relies on, checked against the kernel.
    fn launch(
        &self,
        kernel: &Kernel,
        dims: [u32; 3],
        word: u32,
    ) -> Result<(Shape, u64), Pm4Reason> {
        let rsrc = self.resources(kernel)?;
        self.registers.read(reg::RESOURCE_LIMITS)?;
        let group_size = self.group_size(kernel)?;
        self.start(word)?;
        let groups = self.groups(kernel, dims, group_size, word)?;
        let lds_bytes = rsrc2::lds_granules(rsrc[1]) * rsrc2::LDS_GRANULE;
        let fixed = kernel.descriptor.group_segment_fixed_size;
        let limit = rsrc2::LDS_GRANULE * rsrc2::LDS_MAX_GRANULES;
        if lds_bytes < fixed || lds_bytes > limit {
            return Err(Pm4Reason::Lds {
                kernel: Arc::clone(&kernel.name),
                bytes: lds_bytes,
                fixed,
                limit,
            });
        }
        let mut user_sgprs = [0; 16];
        for (index, sgpr) in (0..).zip(
            user_sgprs
                .iter_mut()
                .take(usize::from(kernel.user_sgprs.count)),
        ) {
            *sgpr = self.registers.read(reg::USER_DATA_0 + index)?;
        }
        let kernarg_va = self.kernarg(kernel, &user_sgprs)?;
        Ok((
            Shape {
                groups,
                group_size,
                lds_bytes,
                scratch_bytes: 0,
                rsrc,
                user_sgprs,
            },
            kernarg_va,
        ))
    }

    fn resources(&self, kernel: &Kernel) -> Result<[u32; 3], Pm4Reason> {
        // What a dispatcher may change: PRIV where the workaround exists, LDS_SIZE, and the hints
        // of RSRC3 (INST_PREF_SIZE; IMAGE_OP from gfx11 on).
        let gfx11 = matches!(
            self.registers.gfx().generation(),
            Generation::Gfx11 | Generation::Gfx11_5
        );
        let own1 = if gfx11 { rsrc1::PRIV } else { 0 };
        let own3 = 0x8000_0FF0;
        let rows = [
            ("PGM_RSRC1", reg::PGM_RSRC1, kernel.descriptor.rsrc1, !own1),
            (
                "PGM_RSRC2",
                reg::PGM_RSRC2,
                kernel.descriptor.rsrc2,
                !rsrc2::LDS_SIZE,
            ),
            ("PGM_RSRC3", reg::PGM_RSRC3, kernel.descriptor.rsrc3, !own3),
        ];
        let mut words = [0; 3];
        for (slot, (name, offset, expected, mask)) in words.iter_mut().zip(rows) {
            let found = self.registers.read(offset)?;
            if (found ^ expected) & mask != 0 {
                let kernel = Arc::clone(&kernel.name);
                return Err(Pm4Reason::Resource {
                    name,
                    kernel,
                    found,
                    expected,
                    mask,
                });
            }
            *slot = found;
        }
        Ok(words)
    }

    fn group_size(&self, kernel: &Kernel) -> Result<[u32; 3], Pm4Reason> {
        let size = self.registers.read3(reg::NUM_THREAD_X)?;
        let limit = kernel.metadata.max_flat_workgroup_size;
        let name = || Arc::clone(&kernel.name);
        // A whole value above 1,024 is a PARTIAL or INTERLEAVE field that is not zero.
        let fits = size.iter().all(|n| (1..=1024).contains(n));
        if !fits || size.iter().product::<u32>() > limit.min(1024) {
            return Err(Pm4Reason::GroupSize {
                kernel: name(),
                size,
                limit,
            });
        }
        match kernel
            .metadata
            .reqd_workgroup_size
            .filter(|required| *required != size)
        {
            Some(required) => Err(Pm4Reason::RequiredGroupSize {
                kernel: name(),
                found: size,
                required,
            }),
            None => Ok(size),
        }
    }

    fn start(&self, word: u32) -> Result<(), Pm4Reason> {
        let rows = [
            ("START_X", reg::START_X),
            ("START_Y", reg::START_Y),
            ("START_Z", reg::START_Z),
        ];
        for (name, offset) in rows {
            match self.registers.read(offset) {
                Ok(0) => {}
                Ok(value) => return Err(Pm4Reason::Start { name, value }),
                // FORCE_START_AT_000 makes hardware ignore the registers.
                Err(_) if word & initiator::FORCE_START_AT_000 != 0 => {}
                Err(unset) => return Err(unset),
            }
        }
        Ok(())
    }

    fn groups(
        &self,
        kernel: &Kernel,
        dims: [u32; 3],
        size: [u32; 3],
        word: u32,
    ) -> Result<[u32; 3], Pm4Reason> {
        let wrong = |what| Pm4Reason::Dimensions {
            kernel: Arc::clone(&kernel.name),
            dims,
            what,
        };
        let mut groups = dims;
        if dims.contains(&0) {
            return Err(wrong("each must be at least 1"));
        }
        if word & initiator::USE_THREAD_DIMENSIONS != 0 {
            for (count, n) in groups.iter_mut().zip(size) {
                if !count.is_multiple_of(n) {
                    return Err(wrong(
                        "work-items (USE_THREAD_DIMENSIONS) must fill whole groups",
                    ));
                }
                *count /= n;
            }
        }
        let limit = self.registers.gfx().capability().max_groups_yz.value;
        if groups[1] > limit || groups[2] > limit {
            return Err(wrong("y and z are limited to 65535 groups on this target"));
        }
        match over_budget(self.shared, groups) {
            Some(groups) => Err(Pm4Reason::Budget {
                groups,
                limit: self.shared.config.group_budget,
            }),
            None => Ok(groups),
        }
    }

    fn kernarg(&self, kernel: &Kernel, user_sgprs: &[u32; 16]) -> Result<u64, Pm4Reason> {
        let Some(first) = kernel.user_sgprs.kernarg_segment_ptr else {
            return Ok(0);
        };
        let half = |index: u8| {
            u64::from(
                user_sgprs
                    .get(usize::from(index))
                    .copied()
                    .unwrap_or_default(),
            )
        };
        let va = half(first) | half(first + 1) << 32;
        let (bytes, align) = (kernel.kernarg_size(), kernel.kernarg_align());
        if va == 0 && bytes == 0 {
            return Ok(0);
        }
        let name = || Arc::clone(&kernel.name);
        if va == 0 || !va.is_multiple_of(u64::from(align)) {
            return Err(Pm4Reason::Kernarg {
                kernel: name(),
                va,
                bytes,
                align,
            });
        }
        let checked = self.shared.memory.check(va, u64::from(bytes), Access::Read);
        checked
            .map(|()| va)
            .map_err(|fault| Pm4Reason::KernargMemory {
                kernel: name(),
                fault,
            })
    }
}

fn check_initiator(value: u32) -> Result<(), Pm4Reason> {
    let wrong = |field, what| Err(Pm4Reason::Initiator { value, field, what });
    let other = value & !INITIATOR_EXECUTED;
    if other != 0 {
        return wrong(
            field_name(INITIATOR_FIELDS, 0, other),
            "is not executed; clear it",
        );
    }
    if value & initiator::COMPUTE_SHADER_EN == 0 {
        return wrong("COMPUTE_SHADER_EN", "must be set");
    }
    if value & initiator::CS_W32_EN == 0 {
        return wrong("CS_W32_EN", "must be set; only wave32 is executed");
    }
    Ok(())
}

/// Name of the field that the lowest bit of `bits` belongs to.
fn field_name(fields: &'static [Field], word: u8, bits: u32) -> &'static str {
    let lowest = bits & bits.wrapping_neg();
    let row = fields
        .iter()
        .find(|field| field.word == word && field.mask() & lowest != 0);
    row.map_or("a reserved bit", |field| field.name)
}

fn bad_event(control: u32) -> Pm4Reason {
    let code = (control & 0x3f) as u8;
    let row = event(code);
    Pm4Reason::Event {
        event: code,
        name: row.map_or("unknown", |row| row.name),
        index: (control >> 8) & 0xf,
        hint: if row.is_some_and(|row| row.timestamp) {
            "; time-stamp events belong in RELEASE_MEM"
        } else {
            ""
        },
    }
}

fn check_acquire(acquire: &AcquireMem, registers: &Registers) -> Result<(), Pm4Reason> {
    if acquire.control != 0 || !acquire.full_range() {
        let AcquireMem {
            control,
            size,
            base,
            ..
        } = *acquire;
        return Err(Pm4Reason::Range {
            control,
            size,
            base,
        });
    }
    let gfx = registers.gfx();
    // gfx12 has no L1; encoders that still set its bit run unharmed (Mesa, ROCr).
    let tolerated = if gfx.capability().gl1.value {
        0
    } else {
        gcr::GL1_INV
    };
    let reserved = reserved_mask(GCR_FIELDS, 7, gfx.generation()) & !tolerated;
    // GLI_INV values 2 and 3 and the range selectors name address ranges.
    let refused = 0b10 | gcr::GL1_RANGE | gcr::GL2_RANGE | gcr::GL2_DISCARD | gcr::RANGE_IS_PA;
    let bits = acquire.gcr & (reserved | refused);
    if bits != 0 {
        let field = field_name(GCR_FIELDS, 7, bits);
        return Err(Pm4Reason::Gcr {
            value: acquire.gcr,
            field,
            target: gfx.name(),
        });
    }
    Ok(())
}
