//! Program control: branches, ends, barriers, mode checks, and the operations that cannot go on.

use super::context::{Ctx, Fault};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::Wave;
use crate::isa::op::Op;

/// Value of `imm` for a jump to where no instruction begins.
pub(super) const NOWHERE: i32 = -1;

#[inline(always)]
fn branch(u: &Uop, x: &mut Ctx<'_>, taken: bool) -> Flow {
    if !taken {
        return Flow::NEXT;
    }
    if u.imm == NOWHERE {
        let address = x.program.branch_address(u);
        return x.stop(Fault::Jump { address });
    }
    Flow::jump(u.imm as u32)
}

macro_rules! controls {
    ($($name:ident |$w:ident, $u:ident, $x:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Exec for $name {
                fn run<L: Level>($w: &mut Wave, $u: &Uop, $x: &mut Ctx<'_>) -> Flow {
                    $value
                }
            }
        )*
        /// The handler of a control operation.
        pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$name>(speed)),)*
                Op::SSendmsgRtn(_) => Some(handler::<MessageWithAnswer>(speed)),
                _ => None,
            }
        }
    };
}

/// `s_sendmsg_rtn`: clocks, doorbells and trap addresses.
struct MessageWithAnswer;

impl Exec for MessageWithAnswer {
    fn run<L: Level>(_w: &mut Wave, _u: &Uop, x: &mut Ctx<'_>) -> Flow {
        x.stop(Fault::Unsupported(
            "messages with an answer (clocks, doorbells) go to hardware that is not modelled",
        ))
    }
}

const NAMED_BARRIER: &str = "named barriers are not modelled, only the work-group's";

/// Signals the group's barrier for this wave.
fn signal(w: &mut Wave, x: &mut Ctx<'_>) {
    x.signals += 1;
    if x.signals >= x.alive {
        x.signals = 0;
        x.completed = true;
        w.released = true;
    }
}

fn wait(w: &mut Wave) -> Flow {
    if w.released {
        w.released = false;
        return Flow::NEXT;
    }
    Flow::BARRIER
}

controls! {
    SNop |_w, _u, _x| Flow::NEXT;
    SWait |_w, _u, _x| Flow::NEXT;
    SInv |_w, _u, _x| Flow::NEXT;
    GCache |_w, _u, _x| Flow::NEXT;
    DsNop |_w, _u, _x| Flow::NEXT;
    // It exchanges the halves of a wave64; on a wave32 it does nothing (RDNA ISA).
    VPermlane64B32 |_w, _u, _x| Flow::NEXT;
    VNop |_w, _u, _x| Flow::NEXT;
    SEndpgm |_w, _u, _x| Flow::END;
    SBranch |_w, u, x| branch(u, x, true);
    SCbranchScc0 |w, u, x| { let t = !w.scc(); branch(u, x, t) };
    SCbranchScc1 |w, u, x| { let t = w.scc(); branch(u, x, t) };
    SCbranchVccz |w, u, x| { let t = w.vcc() == 0; branch(u, x, t) };
    SCbranchVccnz |w, u, x| { let t = w.vcc() != 0; branch(u, x, t) };
    SCbranchExecz |w, u, x| { let t = w.exec() == 0; branch(u, x, t) };
    SCbranchExecnz |w, u, x| { let t = w.exec() != 0; branch(u, x, t) };
    SBarrier |w, _u, x| { signal(w, x); wait(w) };
    SBarrierWait |w, u, x| {
        if u.imm == -1 {
            wait(w)
        } else {
            x.stop(Fault::Unsupported("only the work-group barrier -1 is modelled"))
        }
    };
    SBarrierSignal |w, u, x| {
        if w.scalar(x, u.a) == u32::MAX {
            signal(w, x);
            Flow::NEXT
        } else {
            x.stop(Fault::Unsupported("only the work-group barrier -1 is modelled"))
        }
    };
    SBarrierSignalIsfirst |w, u, x| {
        if w.scalar(x, u.a) == u32::MAX {
            let first = x.signals == 0;
            signal(w, x);
            w.set_scc(first);
            Flow::NEXT
        } else {
            x.stop(Fault::Unsupported("only the work-group barrier -1 is modelled"))
        }
    };
    SGetBarrierState |w, u, x| {
        if w.scalar(x, u.a) != u32::MAX {
            return x.stop(Fault::Unsupported("only the work-group barrier -1 is modelled"));
        }
        // Signals, members, and whether the barrier exists.
        w.set(u.dst, (x.signals & 0x7f) << 16 | (x.alive & 0x7f) << 4 | 1);
        Flow::NEXT
    };
    SBarrierInit |_w, _u, x| x.stop(Fault::Unsupported(NAMED_BARRIER));
    SBarrierJoin |_w, _u, x| x.stop(Fault::Unsupported(NAMED_BARRIER));
    SBarrierLeave |_w, _u, x| x.stop(Fault::Unsupported(NAMED_BARRIER));
    SPrefetch |_w, _u, _x| Flow::NEXT;
    SSendmsg |_w, u, x| {
        // 3: the wave gives its vector registers back early; nothing to do here.
        if u.imm & 0xff == 3 {
            Flow::NEXT
        } else {
            x.stop(Fault::Unsupported("messages other than MSG_DEALLOC_VGPRS go to hardware that is not modelled"))
        }
    };
    SRoundMode |w, u, _x| {
        w.mode = w.mode & !15 | u.imm as u32 & 15;
        Flow::MODE
    };
    SDenormMode |w, u, _x| {
        w.mode = w.mode & !0xf0 | (u.imm as u32 & 15) << 4;
        Flow::MODE
    };
    STrap |_w, _u, x| x.stop(Fault::Unsupported("s_trap: there is no trap handler"));
    SCodeEnd |_w, _u, x| x.stop(Fault::Unsupported("execution ran into the padding after the code"));
    SGetpcB64 |w, u, x| {
        w.set64(u.dst, x.program.next_address(u));
        Flow::NEXT
    };
    SSetpcB64 |w, u, x| {
        let to = w.scalar64(x, u.a);
        indirect(x, to)
    };
    SSwappcB64 |w, u, x| {
        let to = w.scalar64(x, u.a);
        w.set64(u.dst, x.program.next_address(u));
        indirect(x, to)
    };
    SCallB64 |w, u, x| {
        w.set64(u.dst, x.program.next_address(u));
        branch(u, x, true)
    };
}

fn indirect(x: &mut Ctx<'_>, address: u64) -> Flow {
    match x.program.index_of(address) {
        Some(index) => Flow::jump(index),
        None => x.stop(Fault::Jump { address }),
    }
}

/// Words that do not decode; an error only when reached.
pub(super) struct Undecodable;

impl Exec for Undecodable {
    fn run<L: Level>(_w: &mut Wave, _u: &Uop, x: &mut Ctx<'_>) -> Flow {
        x.stop(Fault::Undecodable)
    }
}
