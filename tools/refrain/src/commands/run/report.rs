//! The report of a run: one JSON object, or a few lines on stderr.

use crate::output;
use refrain_kernels::StopReason;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_replay::{CpuSession, DeviceSpec, Generation, Refusal, Session};
use serde::Serialize;

/// The JSON object of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name and version of this object's shape.
    pub schema: &'static str,
    /// Generated token ids.
    pub tokens: Vec<u32>,
    /// Their text; null without a tokenizer.
    pub text: Option<String>,
    /// Why the text ended before the tokens asked for, if it did.
    pub stop: Option<&'static str>,
    /// Device, e.g. `soft:gfx1201`.
    pub device: String,
    /// `aql` or `pm4`; null where nothing was retained.
    pub transport: Option<String>,
    /// Digest of the plan file.
    pub plan_id: String,
    /// Structure and artifacts digest, short form.
    pub sequence_hash: String,
    /// Launches of one token.
    pub launches_per_token: usize,
    /// Distinct kernels.
    pub unique_kernels: usize,
    /// Dwords of one retained token.
    pub dwords: usize,
    /// Token steps replayed, prompt included.
    pub replayed_tokens: u64,
    /// Token steps run eagerly for the output, prompt included.
    pub eager_tokens: u64,
    /// Refusals by code.
    pub refusals: Vec<RefusalRow>,
    /// Whether eager and retained gave the same tokens and bytes; null if not asked.
    pub verified: Option<bool>,
    /// Digest of every buffer after a verified run, to compare processes, targets and machines.
    pub state: Option<String>,
    /// Host time per token.
    pub host_us_per_token: HostTimes,
    /// Generated tokens by wall time of the text, prompt included. On `soft:` a CPU's figure.
    pub tok_s: f64,
    /// Digest of the proof that covers the packets, short form; `none` without one.
    pub proof: String,
    /// The engine of `--device cpu`; null on other devices.
    pub cpu: Option<CpuFacts>,
}

/// How a run on the CPU was executed. Its times are this CPU's.
#[derive(Debug, Serialize)]
pub struct CpuFacts {
    /// Name and version of the engine.
    pub engine: String,
    /// Threads that shared the work.
    pub threads: usize,
    /// Instruction set that was chosen.
    pub isa: &'static str,
    /// Form of the activations, a property of the plan.
    pub activations: &'static str,
    /// Token steps by the median of their wall time, prompt included, measured on this CPU.
    pub step_tok_s: Option<f64>,
}

/// A refusal and how often.
#[derive(Debug, Serialize)]
pub struct RefusalRow {
    /// `RFxxx`.
    pub code: String,
    /// Times.
    pub count: u64,
}

/// Host microseconds per token, waits excluded.
#[derive(Debug, Serialize)]
pub struct HostTimes {
    /// One HIP launch per step.
    pub eager: Option<f64>,
    /// Pre-encoded packets.
    pub retained: Option<f64>,
}

/// What a run produced, before it is put into words.
pub(super) struct Outcome {
    pub(super) generation: Generation,
    pub(super) text: Option<String>,
    pub(super) verified: Option<bool>,
    pub(super) state: Option<String>,
}

/// The report of a run.
pub(super) fn report(plan: &CheckedPlan, session: &Session, outcome: Outcome) -> Report {
    let Outcome {
        generation,
        text,
        verified,
        state,
    } = outcome;
    let counters = session.counters();
    let seconds = counters.wall.as_secs_f64();
    let refusals = counters.refusals.rows().iter();
    let lowered = session.lowered();
    Report {
        schema: "refrain.run.v1",
        tokens: generation.tokens,
        text,
        stop: generation.stop.map(StopReason::name),
        device: session.opened().spec.to_string(),
        transport: lowered.map(|lowered| lowered.transport().to_string()),
        plan_id: hex(plan.id()),
        sequence_hash: plan.identity().sequence.to_string(),
        launches_per_token: counters.launches_per_token,
        unique_kernels: counters.unique_kernels,
        dwords: counters.dwords,
        replayed_tokens: counters.replayed_tokens,
        eager_tokens: counters.eager_tokens,
        refusals: refusals
            .map(|&(code, count)| RefusalRow {
                code: code.to_string(),
                count,
            })
            .collect(),
        verified,
        state,
        host_us_per_token: HostTimes {
            eager: counters.eager_host_us,
            retained: counters.retained_host_us,
        },
        tok_s: if seconds > 0.0 {
            counters.generated as f64 / seconds
        } else {
            0.0
        },
        proof: session.standing().to_string(),
        cpu: None,
    }
}

/// The report of a run that was refused before its first token.
pub(super) fn refused(plan: &CheckedPlan, device: DeviceSpec, refusal: &Refusal) -> Report {
    Report {
        refusals: vec![RefusalRow {
            code: refusal.code.to_string(),
            count: 1,
        }],
        ..empty(plan, device)
    }
}

/// The report of a run on the CPU.
pub(super) fn of_cpu(plan: &CheckedPlan, session: &CpuSession, outcome: Outcome) -> Report {
    let counters = session.counters();
    let seconds = counters.wall.as_secs_f64();
    let instance = session.instance();
    Report {
        tokens: outcome.generation.tokens,
        text: outcome.text,
        stop: outcome.generation.stop.map(StopReason::name),
        launches_per_token: instance.launches(),
        eager_tokens: counters.steps,
        tok_s: if seconds > 0.0 {
            counters.generated as f64 / seconds
        } else {
            0.0
        },
        cpu: Some(CpuFacts {
            engine: concat!("refrain-cpu ", env!("CARGO_PKG_VERSION")).to_owned(),
            threads: instance.threads(),
            isa: instance.isa().name(),
            activations: plan.options.activations.name(),
            step_tok_s: counters.step_us.map(|us| 1e6 / us),
        }),
        ..empty(plan, DeviceSpec::Cpu)
    }
}

/// What the plan alone says.
fn empty(plan: &CheckedPlan, device: DeviceSpec) -> Report {
    let mut symbols: Vec<_> = plan.kernels.iter().map(|kernel| &kernel.symbol).collect();
    symbols.sort();
    symbols.dedup();
    Report {
        schema: "refrain.run.v1",
        tokens: Vec::new(),
        text: None,
        stop: None,
        device: device.to_string(),
        transport: None,
        plan_id: hex(plan.id()),
        sequence_hash: plan.identity().sequence.to_string(),
        launches_per_token: plan.steps.len(),
        unique_kernels: symbols.len(),
        dwords: 0,
        replayed_tokens: 0,
        eager_tokens: 0,
        refusals: Vec::new(),
        verified: None,
        state: None,
        host_us_per_token: HostTimes {
            eager: None,
            retained: None,
        },
        tok_s: 0.0,
        proof: "none".to_owned(),
        cpu: None,
    }
}

/// The report of a run on the CPU in words, on stderr.
pub(super) fn summary_of_cpu(report: &Report) {
    let Some(cpu) = &report.cpu else {
        return;
    };
    let steps = cpu.step_tok_s;
    let steps = steps.map_or(String::new(), |rate| format!(", {rate:.1} steps/s by the median"));
    let threads = if cpu.threads == 1 { "thread" } else { "threads" };
    let stopped = report.stop.unwrap_or("after the tokens asked for");
    let lines = [
        format!(
            "device      cpu: {}, {} {threads}, {}, {} activations",
            cpu.engine, cpu.threads, cpu.isa, cpu.activations
        ),
        format!("plan        {}", report.plan_id),
        format!("sequence    {}", report.sequence_hash),
        format!(
            "per token   {} launches, {} kernels, executed one after the other",
            report.launches_per_token, report.unique_kernels
        ),
        format!(
            "speed       {:.1} tokens/s with the prompt{steps} (measured on this CPU)",
            report.tok_s
        ),
        format!("stopped     {stopped}"),
    ];
    output::note(&lines.join("\n"));
}

/// The report in words, on stderr.
pub(super) fn summary(report: &Report) {
    let soft = report.device.starts_with("soft:");
    let transport = report.transport.as_deref().unwrap_or("none (eager)");
    let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1}"));
    let of_all = report.replayed_tokens + report.eager_tokens;
    let speed = if soft {
        "software GPU on this CPU, not a GPU's speed"
    } else {
        "measured"
    };
    let verified = match report.verified {
        None => "not asked (--verify)",
        Some(true) => "yes: tokens and every buffer equal eager, byte for byte",
        Some(false) => "NO",
    };
    let refused: Vec<String> = report
        .refusals
        .iter()
        .map(|row| format!("{} x{}", row.code, row.count))
        .collect();
    let lines = [
        format!("device      {}", report.device),
        format!("transport   {transport}, proof: {}", report.proof),
        format!("plan        {}", report.plan_id),
        format!("sequence    {}", report.sequence_hash),
        format!(
            "per token   {} launches, {} kernels, {} dwords",
            report.launches_per_token, report.unique_kernels, report.dwords
        ),
        format!(
            "replayed    {} of {of_all} tokens (prompt included)",
            report.replayed_tokens
        ),
        format!(
            "host µs     {} eager, {} retained per token (calls only, no waiting)",
            us(report.host_us_per_token.eager),
            us(report.host_us_per_token.retained)
        ),
        format!("verified    {verified}"),
        format!("speed       {:.1} tokens/s ({speed})", report.tok_s),
        format!(
            "stopped     {}",
            report.stop.unwrap_or("after the tokens asked for")
        ),
        format!(
            "refusals    {}",
            if refused.is_empty() {
                "none".into()
            } else {
                refused.join(", ")
            }
        ),
    ];
    output::note(&lines.join("\n"));
}

#[cfg(test)]
pub(super) mod tests {
    use super::{HostTimes, Report};

    /// A report of a run that ended for a reason.
    pub(crate) fn finished(stop: Option<&'static str>) -> Report {
        Report {
            schema: "refrain.run.v1",
            tokens: vec![1],
            text: None,
            stop,
            device: "soft:gfx1201".into(),
            transport: None,
            plan_id: String::new(),
            sequence_hash: String::new(),
            launches_per_token: 0,
            unique_kernels: 0,
            dwords: 0,
            replayed_tokens: 0,
            eager_tokens: 0,
            refusals: Vec::new(),
            verified: None,
            state: None,
            host_us_per_token: HostTimes {
                eager: None,
                retained: None,
            },
            tok_s: 0.0,
            proof: "none".to_owned(),
            cpu: None,
        }
    }

    /// The object's keys, in order: a consumer may rely on all of them being there.
    #[test]
    fn the_schema_names_every_key() {
        let json = serde_json::to_string(&finished(None)).unwrap();
        let mut at = 0;
        for key in [
            "schema",
            "tokens",
            "text",
            "stop",
            "device",
            "transport",
            "plan_id",
            "sequence_hash",
            "launches_per_token",
            "unique_kernels",
            "dwords",
            "replayed_tokens",
            "eager_tokens",
            "refusals",
            "verified",
            "state",
            "host_us_per_token",
            "tok_s",
            "proof",
            "cpu",
        ] {
            let found = json[at..].find(&format!("\"{key}\":"));
            at += found.unwrap_or_else(|| panic!("{key} is missing after byte {at} of {json}"));
        }
    }
}
