//! The 50 rules: ID, severity, title, remedy, and the context that each needs or can use.

use super::context::Part;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Warning,
    /// Rejected unless waived.
    Hazard,
    /// Always rejected.
    Error,
}

impl Severity {
    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Hazard => "hazard",
            Self::Error => "error",
        }
    }
}

/// One row of the rule table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The rule.
    pub rule: Rule,
    /// ID as printed.
    pub id: &'static str,
    /// Usual severity; a finding may be milder or stronger where the rule says so.
    pub severity: Severity,
    /// What is wrong when it fires.
    pub title: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// Context without which the rule cannot judge at all.
    pub needs: &'static [Part],
    /// Context that adds clauses.
    pub wants: &'static [Part],
}

macro_rules! rules {
    ($( $id:ident $severity:ident [$($need:ident)*] [$($want:ident)*] $title:literal $remedy:literal; )*) => {
        /// A rule's ID.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $( #[doc = $title] $id, )*
        }
        /// The rule table in ID order: AQL ring, PM4 syntax, dispatch semantics, hazards.
        pub const RULES: &[Row] = &[
            $( Row {
                rule: Rule::$id,
                id: stringify!($id),
                severity: Severity::$severity,
                title: $title,
                remedy: $remedy,
                needs: &[$(Part::$need),*],
                wants: &[$(Part::$want),*],
            }, )*
        ];
    };
}

rules! {
    A01 Error [] [] "packet type or header bits do not exist" "write type 0, 2, 3 or 5, scopes 0 to 2, and zero in bits 15:13";
    A02 Error [Events] [] "header published before the body, or not as one 32-bit release store" "write bytes 4 to 63 first, then store header and setup or format as one 32-bit release store";
    A03 Error [Events Queue] [] "ring overrun, or a doorbell that goes back or names an unpublished slot" "reserve, wait for room, publish, then ring the last published id";
    A04 Error [Queue] [] "ring size or base out of limits" "use a power of two from 64 to 131072 packets on a 4 KiB boundary";
    A05 Error [] [Kernels Facts] "dimensions, group size or grid out of limits" "use 1 to 3 dimensions, groups of 1 to 1024 work-items that the kernel allows, unused dimensions 1";
    A06 Error [] [Kernels Facts] "kernel object is not a loaded descriptor for this target" "pass the address of the symbol that ends in .kd, loaded for this device";
    A07 Error [] [Kernels Queue] "LDS or scratch size below the kernel's or above the limit" "pass static plus dynamic bytes, at most 65536 of LDS";
    A08 Error [] [Kernels Allocations Nodes] "kernarg address missing, misaligned, outside live memory or not the launch's" "pass the 16-byte aligned address of the launch's own slot inside a live kernarg allocation";
    A09 Hazard [Kernels] [Allocations Queue Nodes] "kernarg range overlaps another launch's range, an output, a buffer or the ring" "give every launch its own range that nothing writes";
    A10 Error [] [] "reserved packet field is not zero" "zero the whole body before filling it in";
    A11 Error [] [Signals Peers] "barrier can never be met" "let barriers depend only on signals that earlier or independent packets complete";
    A12 Error [] [Signals Events] "completion signal misaligned, not armed, not a user signal, shared or reused too early" "store 1 before publishing and wait for 0 before reuse; one signal per packet in flight";
    A13 Hazard [Nodes] [Host] "header fences or barrier bit too weak for the data" "acquire at system scope for host data, release at system scope for host readers, barrier bit for dependent packets";
    A14 Error [] [] "vendor packet is not a well-formed PM4-IB packet" "use format 1, byte 3 zero, jump header 0xC0023F00, remain 10, reserved words zero";
    A15 Error [] [] "indirect-buffer jump out of limits" "use 1 to 0xFFFFF dwords, VALID, a 4-byte aligned 48-bit address, no chain, VMID, polling or privilege";
    A16 Error [Allocations] [Events] "indirect buffer not in live executable memory, or changed in flight" "keep it in an executable allocation, unchanged until the completion signal falls";
    A17 Warning [Queue] [] "queue is profiled, intercepted or has trap handlers" "measure on a queue without tools attached";
    P01 Error [] [] "word is not a legal packet header" "use type 3 (or 2 as filler) with zero in bits 7:2 and no predicate";
    P02 Error [] [] "packet length is not the opcode's, or runs past the end" "set count to total dwords minus 2";
    P03 Error [] [] "opcode outside the vocabulary" "use NOP, SET_SH_REG, DISPATCH_DIRECT, EVENT_WRITE, ACQUIRE_MEM and the accepted memory packets";
    P04 Error [] [] "SET_SH_REG outside the compute window, with index or VMID bits, or without values" "write offsets 0x200 to 0x24F, index 0, at least one value";
    P05 Error [] [] "register must not be written from an indirect buffer" "leave it to the queue, the packet processor or the kernel driver";
    P06 Error [] [Ib Policy] "buffer is empty, too long or not as long as declared" "declare the exact length, at most 0xFFFFF dwords; pad with NOP when the policy pads";
    P07 Error [] [] "EVENT_WRITE is not CS_PARTIAL_FLUSH" "send 0x407; time-stamp events belong in RELEASE_MEM";
    P08 Error [] [] "ACQUIRE_MEM or RELEASE_MEM uses reserved, ranged or discarding controls" "use full range, dword 1 zero and the GCR word of the capability row; release with a time-stamp event";
    P09 Error [] [Allocations] "memory packet has undefined selectors, or writes a register, misaligned or undeclared memory" "write aligned addresses inside live data buffers or declared targets, with selectors that exist";
    P10 Error [] [Host] "wait that nothing can satisfy" "wait on memory that an earlier packet or the host contract writes, with a function that cannot be skipped";
    D01 Error [] [] "dispatch relies on a register that this buffer has not written" "write every register the dispatch reads before the first dispatch";
    D02 Error [] [Kernels] "program address or resource words are not a known kernel's" "take PGM and RSRC words from the kernel's descriptor";
    D03 Error [] [] "dispatch initiator sets bits that are wrong or reserved" "use 0x8005 for wave32 and 0x0005 for wave64";
    D04 Error [Kernels] [Facts] "wave size or register count differs from the kernel's" "set CS_W32_EN as the descriptor says and take VGPRS from it";
    D05 Error [] [Kernels Facts Nodes] "grid or group shape is wrong" "pass group counts, full groups of 1 to 1024 work-items that the kernel allows";
    D06 Error [] [] "dispatch does not start at group 0" "write START as zero and set FORCE_START_AT_000";
    D07 Error [] [Kernels Nodes] "LDS allocation too small or too large" "set LDS_SIZE to static plus dynamic bytes in granules of 512, at most 128";
    D08 Error [] [Kernels Nodes Allocations] "user SGPRs do not match the kernel" "follow the descriptor's properties in order; kernarg pointer of this launch";
    D09 Error [] [Kernels] "scratch enabled without a scratch ring, or the other way round" "refuse kernels with scratch, or bind the queue's ring";
    D10 Error [] [Kernels Facts] "kernel or registers use features that a hand-made dispatch lacks" "compile without them; leave trap and exception bits zero";
    D11 Warning [] [] "RSRC1.PRIV is not what the target needs" "follow the capability row, or name another policy";
    D12 Error [] [Kernels Facts] "code object is for another target" "compile for the device";
    D13 Warning [] [] "RESOURCE_LIMITS restricts the dispatch" "write 0";
    H01 Error [Nodes] [] "dependent launches without a wait between them" "put CS_PARTIAL_FLUSH between them";
    H02 Error [Nodes] [] "data read back without the cache invalidation it needs" "put ACQUIRE_MEM after the wait with GLV, GL1 where it exists, and GLK for scalar reads";
    H03 Error [] [Header Host] "first dispatch without a system acquire" "start with the head acquire of the capability row";
    H04 Error [] [Header Host] "buffer does not end with a wait" "end with CS_PARTIAL_FLUSH; write L2 back when the host reads";
    H05 Hazard [Nodes] [] "buffer written again after vector reads without an invalidate on gfx12" "put ACQUIRE_MEM before the writer, or waive";
    H06 Error [Nodes Allocations] [] "launch touches memory that is not live or has moved" "encode again after reallocating";
    H07 Error [Reference] [] "elided stream does not leave the registers of the full stream" "emit the register again";
    H08 Warning [Nodes] [] "wait or invalidate that no hazard asks for" "drop it, or accept the cost";
    H09 Error [InFlight Nodes] [Header] "two buffers in flight share memory without a barrier" "set the barrier bit or give each its own ranges";
    H10 Error [Nodes] [Ib Allocations Queue] "launch or packet writes code, packets or kernargs" "declare it, or move the buffers apart";
}

impl Rule {
    /// The rule's row.
    pub fn row(self) -> &'static Row {
        // The enum and the table come from one list, so the index is in range.
        &RULES[self as usize]
    }

    /// The rule with an ID such as `P05`.
    pub fn named(id: &str) -> Option<Self> {
        RULES.iter().find(|row| row.id == id).map(|row| row.rule)
    }

    /// True for rules about the AQL ring.
    pub fn is_ring(self) -> bool {
        self <= Self::A17
    }
}
