//! The report of a run: one JSON object, or a few lines on stderr.

use super::soft::Findings;
use crate::output;
use refrain_kernels::StopReason;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::plan::BufferKind;
use refrain_replay::{Counters, CpuSession, DeviceSpec, Generation, Refusal, Session};
use serde::Serialize;
use std::time::Duration;

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
    /// Tokens that were not published and ran eagerly instead.
    pub fallbacks: u64,
    /// Changes to the plan of another bucket.
    pub bucket_switches: u64,
    /// Launches replayed, of all outside of split steps; those beside the host's rows are in `offload`.
    pub replayed_launches: u64,
    /// All launches outside of split steps.
    pub all_launches: u64,
    /// Who did what with spilled layers; null where nothing is spilled.
    pub offload: Option<Offload>,
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
    /// What strict mode found; null if not asked.
    pub strict: Option<Findings>,
    /// Faults that were injected; null without a script.
    pub injected: Option<Vec<String>>,
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

/// Spilled layers: what was asked for, and what each side did. Counts are of all token steps, those past
/// the end of a text included.
#[derive(Debug, Serialize)]
pub struct Offload {
    /// Layers that stay on the GPU.
    pub gpu_layers: u32,
    /// `pcie`, `cpu` or `passback:SHARE`.
    pub exec: String,
    /// Whether the share is fixed; one that is not makes no run comparable with another.
    pub share_pinned: bool,
    /// Steps of the host in a token.
    pub barriers_per_token: usize,
    /// Runs of launches between them.
    pub segments_per_token: usize,
    /// CPU steps executed.
    pub cpu_steps: u64,
    /// Split steps executed.
    pub split_steps: u64,
    /// Launches beside the host's rows.
    pub split_launches: u64,
    /// Matrices that were asked to be divided and were not, with the reason.
    pub undivided: Vec<Undivided>,
    /// Rows and weight bytes that the host multiplied.
    pub host: Side,
    /// Rows and weight bytes of spilled matrices that the GPU multiplied over the link.
    pub gpu: Side,
    /// Bytes copied over the link for the host.
    pub copied_bytes: u64,
    /// Microseconds of copies, all token steps.
    pub copy_us: f64,
    /// Microseconds of products on the host.
    pub multiply_us: f64,
    /// Microseconds that the host waited for the GPU's rows after its own.
    pub join_us: f64,
    /// Part of the wall time in which the GPU certainly waited for steps of the host.
    pub gpu_idle_share: f64,
}

/// One reason, and how many matrices per run it kept whole.
#[derive(Debug, Serialize)]
pub struct Undivided {
    /// `too_small`.
    pub reason: &'static str,
    /// Matrices, over all token steps.
    pub count: u64,
}

/// What one side multiplied.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Rows.
    pub rows: u64,
    /// Weight bytes.
    pub bytes: u64,
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
    let refusals = counters.refusals.rows().iter();
    Report {
        schema: "refrain.run.v1",
        tokens: generation.tokens,
        text,
        stop: generation.stop.map(StopReason::name),
        device: session.opened().spec.to_string(),
        transport: session.transport().map(|transport| transport.to_string()),
        plan_id: hex(plan.id()),
        sequence_hash: plan.identity().sequence.to_string(),
        launches_per_token: counters.launches_per_token,
        unique_kernels: counters.unique_kernels,
        dwords: counters.dwords,
        replayed_tokens: counters.replayed_tokens,
        eager_tokens: counters.eager_tokens,
        fallbacks: counters.fallbacks,
        bucket_switches: counters.bucket_switches,
        replayed_launches: counters.replayed_launches,
        all_launches: counters.all_launches,
        offload: offload(plan, &counters),
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
        tok_s: per_second(counters.generated, counters.wall),
        proof: session.standing().to_string(),
        strict: None,
        injected: None,
        cpu: None,
    }
}

fn offload(plan: &CheckedPlan, counters: &Counters) -> Option<Offload> {
    let exec = plan.options.exec?;
    let (host, us) = (&counters.host, |time: Duration| time.as_secs_f64() * 1e6);
    let undivided = [("too_small", host.too_small)].into_iter();
    Some(Offload {
        gpu_layers: plan.options.gpu_layers,
        exec: exec.to_string(),
        share_pinned: !exec.is_auto(),
        barriers_per_token: counters.barriers_per_token,
        segments_per_token: counters.segments_per_token,
        cpu_steps: host.cpu_steps,
        split_steps: host.split_steps,
        split_launches: host.split_launches,
        undivided: undivided
            .filter(|row| row.1 > 0)
            .map(|(reason, count)| Undivided { reason, count })
            .collect(),
        host: Side {
            rows: host.host_rows,
            bytes: host.host_bytes,
        },
        gpu: over_the_link(plan, counters),
        copied_bytes: host.copied,
        copy_us: us(host.copy_time),
        multiply_us: us(host.multiply_time),
        join_us: us(host.join_time),
        gpu_idle_share: share(host.idle_time, counters.wall),
    })
}

/// What the GPU multiplies of spilled matrices: its rows of split steps, and all rows of those that no
/// step of the host touches.
fn over_the_link(plan: &CheckedPlan, counters: &Counters) -> Side {
    let hosts = plan.barriers().filter_map(|(_, step)| step.body.host());
    let hosted: Vec<u32> = hosts
        .flat_map(|host| &host.parts)
        .map(|part| part.tensor)
        .collect();
    let tokens = counters.eager_tokens + counters.replayed_tokens + counters.past_end_tokens;
    let mut sum = Side {
        rows: counters.host.gpu_rows,
        bytes: counters.host.gpu_bytes,
    };
    for (id, tensor) in (0..).zip(&plan.model.tensors) {
        let buffer = plan.buffers.get(tensor.buffer as usize);
        let spilled = buffer.is_some_and(|buffer| buffer.kind == BufferKind::SpilledWeights);
        if spilled && tensor.rows > 1 && !hosted.contains(&id) {
            sum.rows += u64::from(tensor.rows) * tokens;
            sum.bytes += tensor.bytes * tokens;
        }
    }
    sum
}

fn share(part: Duration, whole: Duration) -> f64 {
    match whole.is_zero() {
        true => 0.0,
        false => part.as_secs_f64() / whole.as_secs_f64(),
    }
}

fn per_second(count: u64, wall: Duration) -> f64 {
    match wall.is_zero() {
        true => 0.0,
        false => count as f64 / wall.as_secs_f64(),
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
    let instance = session.instance();
    Report {
        tokens: outcome.generation.tokens,
        text: outcome.text,
        stop: outcome.generation.stop.map(StopReason::name),
        launches_per_token: instance.launches(),
        eager_tokens: counters.steps,
        tok_s: per_second(counters.generated, counters.wall),
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
        launches_per_token: plan.launches().count(),
        unique_kernels: symbols.len(),
        dwords: 0,
        replayed_tokens: 0,
        eager_tokens: 0,
        fallbacks: 0,
        bucket_switches: 0,
        replayed_launches: 0,
        all_launches: 0,
        offload: None,
        refusals: Vec::new(),
        verified: None,
        state: None,
        host_us_per_token: HostTimes {
            eager: None,
            retained: None,
        },
        tok_s: 0.0,
        proof: "none".to_owned(),
        strict: None,
        injected: None,
        cpu: None,
    }
}

/// The report of a run on the CPU in words, on stderr.
pub(super) fn summary_of_cpu(report: &Report) {
    let Some(cpu) = &report.cpu else {
        return;
    };
    let steps = cpu.step_tok_s;
    let steps = steps.map_or(String::new(), |rate| {
        format!(", {rate:.1} steps/s by the median")
    });
    let threads = if cpu.threads == 1 {
        "thread"
    } else {
        "threads"
    };
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
    let found = report.strict.as_ref();
    let strict = found.map(|found| match found.reports.len() as u64 + found.dropped {
        0 => "no report".to_owned(),
        count => format!("{count} REPORTS"),
    });
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
            "replayed    {} of {of_all} tokens (prompt included), {} fell back, {} changes of bucket",
            report.replayed_tokens, report.fallbacks, report.bucket_switches
        ),
        format!(
            "launches    {} of {} replayed, outside of split steps",
            report.replayed_launches, report.all_launches
        ),
        report
            .offload
            .as_ref()
            .map_or_else(|| "offload     nothing is spilled".to_owned(), in_words),
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
    if let Some(strict) = strict {
        output::note(&format!("strict      {strict}"));
    }
}

fn in_words(offload: &Offload) -> String {
    let Offload {
        gpu_layers,
        exec,
        barriers_per_token,
        segments_per_token,
        cpu_steps,
        split_steps,
        split_launches,
        host,
        gpu,
        copied_bytes,
        ..
    } = offload;
    let auto = if offload.share_pinned {
        ""
    } else {
        ", share not pinned: not comparable"
    };
    let undivided: String = offload
        .undivided
        .iter()
        .map(|row| format!(", undivided {} {}", row.count, row.reason))
        .collect();
    format!(
        "offload     {gpu_layers} layers on the GPU, {exec}{auto}; per token {barriers_per_token} \
         barriers, {segments_per_token} segments\n            {cpu_steps} cpu and {split_steps} split \
         steps with {split_launches} launches{undivided}; rows (bytes): host {} ({}), GPU {} ({}); \
         copied {copied_bytes} bytes; µs: copies {:.0}, products {:.0}, joins {:.0}; GPU idle {:.0} %",
        host.rows,
        host.bytes,
        gpu.rows,
        gpu.bytes,
        offload.copy_us,
        offload.multiply_us,
        offload.join_us,
        100.0 * offload.gpu_idle_share
    )
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
            fallbacks: 0,
            bucket_switches: 0,
            replayed_launches: 0,
            all_launches: 0,
            offload: None,
            refusals: Vec::new(),
            verified: None,
            state: None,
            host_us_per_token: HostTimes {
                eager: None,
                retained: None,
            },
            tok_s: 0.0,
            proof: "none".to_owned(),
            strict: None,
            injected: None,
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
            "fallbacks",
            "bucket_switches",
            "replayed_launches",
            "all_launches",
            "offload",
            "refusals",
            "verified",
            "state",
            "host_us_per_token",
            "tok_s",
            "proof",
            "strict",
            "injected",
            "cpu",
        ] {
            let found = json[at..].find(&format!("\"{key}\":"));
            at += found.unwrap_or_else(|| panic!("{key} is missing after byte {at} of {json}"));
        }
    }
}
