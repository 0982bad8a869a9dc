//! Refusals: why a plan is not made or not retained, by stable code.
//!
//! Codes, titles, remedies and pages are one table, from which `refrain explain` prints and the
//! counters count. Only what this program can refuse today has a row; a code is never reused.

use refrain_planner::placement::PlacementError;
use std::fmt;

macro_rules! codes {
    ($( $name:ident $code:literal $title:literal
        remedy $remedy:literal
        page $page:literal; )*) => {
        /// A reason code, `RF` and three digits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(
                #[doc = concat!("RF", stringify!($code), ": ", $title, ".")]
                $name,
            )*
        }

        /// Every code with its texts, ascending.
        pub const TABLE: &[Row] = &[ $( Row {
            code: Code::$name,
            number: $code,
            title: $title,
            remedy: $remedy,
            page: $page,
        }, )* ];
    };
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The code.
    pub code: Code,
    /// Its number.
    pub number: u16,
    /// What is refused, in a few words.
    pub title: &'static str,
    /// What the user can do, one sentence.
    pub remedy: &'static str,
    /// What is checked, why it matters, and how it is found.
    pub page: &'static str,
}

codes! {
    NotEligible 1 "the plan itself may not be retained"
        remedy "Run it eagerly with --retain none, or change what the reasons name and plan again."
        page "A plan lists, when it is made, every reason why its steps cannot form one tape. Such a plan runs eagerly; nothing is recorded or lowered. The reasons stand in `refrain inspect`.";
    SequenceUnstable 2 "the launch sequence differs from the plan"
        remedy "Report it with the message: a launch, copy or memset that no step accounts for is a defect or another program on the same device handle."
        page "While single tokens run eagerly, every launch, copy and memset that passes the function tables is recorded. The plan says exactly what must pass. A launch too many or too few, two in swapped order, another grid, block or kernel, a copy or a memset means that a replay would compute something else than eager execution, so nothing is retained.";
    KernargMoves 3 "a kernel argument changes between positions or executors"
        remedy "Pass the value through the control block, so that the kernel reads it by address."
        page "Replays share one read-only kernarg arena for all positions. An argument whose bytes change with the position, or between two fresh executors once pointers are resolved to buffers, would be frozen at its recorded value. Recording at three positions in two executors finds it.";
    KernargDiffers 4 "a kernel argument differs from the plan"
        remedy "Report it with the message; the plan and its executor disagree."
        page "The bytes that were launched are compared with the plan, argument by argument, pointers as buffer and offset. The plan is the truth: a difference is an error and never a new tape.";
    PointerOutside 5 "a kernel argument points outside every plan buffer"
        remedy "Report it with the message; a retained pointer must lie in a buffer of the plan."
        page "A pointer that resolves to no buffer of the plan has no declared size, so neither its bounds nor its effects can be checked, and it may dangle at replay.";
    RingDiffers 6 "the packets in the ring differ from the observed launches"
        remedy "Report it with the message: something between the launch call and the queue changed a packet."
        page "The software GPU logs each AQL packet as fetched. The log is decoded once the device is idle and must hold exactly the launches that were observed at the function table: kernel, grid, block, LDS bytes and kernargs byte for byte, each with the barrier bit and fences that keep a stream in order.";
    RecordingUnfinished 7 "the recording is unfinished or damaged"
        remedy "Record again; `refrain record` leaves a finished file or none."
        page "A tape file ends with a digest over everything before it. A file that stops early, has bytes after its end or fails its digest is never mistaken for a recording that finished. Too few positions or executors count as unfinished too, and so does a position that not every executor recorded.";
    OtherPlan 8 "the recording belongs to another plan"
        remedy "Record this plan."
        page "A tape names the sequence digest of its plan: steps, grids, kernarg layout and code objects. Another digest means other launches.";
    FormatVersion 9 "the file has another format version"
        remedy "Make the file again with this program."
        page "Plan and tape files carry a version. There is no conversion: a plan is cheap to make, and a guess about its meaning is not.";
    TargetMismatch 10 "plan and device have different targets"
        remedy "Plan for the device's target, or choose the matching device."
        page "Machine code, descriptor words and cache controls belong to one instruction set. A plan for another target is refused before the device is touched.";
    ModelDiffers 11 "the model file is not the one that was planned"
        remedy "Plan this file, or restore the one that was planned."
        page "The plan holds the length of the model file, a digest of its metadata and tensor table, and a digest of every tensor. Length and metadata are checked before anything is allocated, tensors while they are uploaded.";
    MemoryShort 12 "the plan does not fit the device's memory"
        remedy "Plan a shorter context or a smaller model."
        page "All buffers of a plan are allocated before the first token, and no fallback to other memory is tried. The message gives the bytes needed and present.";
    ObjectDiffers 13 "a code object is absent or not the planned one"
        remedy "Plan again with this build, or rebuild the kernels that the plan names."
        page "A plan names machine code by digest. The bytes at hand must have that digest, hold the kernel, and agree with the plan on kernarg and LDS bytes.";
    Scratch 14 "a kernel needs scratch memory"
        remedy "Rebuild the kernel without spills and stack arrays."
        page "Scratch belongs to the queue and may be reclaimed or resized by the runtime between replays. A retained dispatch must not depend on it.";
    DynamicStack 15 "a kernel needs a stack of unknown size"
        remedy "Rebuild the kernel without recursion and indirect calls."
        page "A dynamic stack is scratch whose size only the runtime can choose per launch, so no packet encoded beforehand can provide it.";
    HiddenArguments 16 "a kernel takes hidden arguments"
        remedy "Rebuild the kernel with constant block sizes and without printf, malloc and assert."
        page "Hidden arguments are filled by the HIP runtime at each launch. They are not in the plan, so their bytes would have no owner.";
    RuntimePointer 17 "a kernel wants registers that only the runtime fills"
        remedy "Rebuild the kernel so that it needs only the kernarg pointer."
        page "Dispatch pointer, queue pointer, dispatch id, kernarg preload, wave groups and reserved properties of a kernel descriptor ask for state that a retained dispatch does not provide.";
    Unencodable 18 "a launch cannot be encoded"
        remedy "Plan again; grid, block or LDS is outside what a packet can say."
        page "Each generation limits work-groups per dimension, work-items per group and LDS per group. The message names the launch and both values.";
    IbTooLong 19 "the indirect buffer would be too long"
        remedy "Replay as AQL packets (--transport aql)."
        page "The size field of INDIRECT_BUFFER has 20 bits: at most 0xFFFFF dwords (documented).";
    ReadBack 20 "the emitted packets do not read back as the plan"
        remedy "Report it with the message; this is a defect of the encoder or of the decoder."
        page "After encoding, an independent decoder reads the words back and compares count, order, kernels, grids, LDS, kernarg addresses, waits and invalidations with the plan. The encoder is never its own judge.";
    Allocation 21 "memory for the retained form could not be had"
        remedy "Free memory on the device, or run eagerly with --retain none."
        page "A retained form needs one kernarg arena, a queue, signals and, for PM4, an executable indirect buffer. They are allocated once, before the first token.";
    Lint 22 "the packet linter rejects the packets"
        remedy "Report it with the message: the plan's schedule, the encoder or the linter is wrong."
        page "Encoded packets are judged by the linter's rules with everything the plan knows: kernels, launches, declared reads and writes, buffers. A launch that reads what another wrote without a wait or an invalidation between them is found here, whatever the schedule claims.";
    WeightsAbsent 23 "the plan was made without weights"
        remedy "Fill the plan from the whole model (refrain plan MODEL --fill PLAN), or make it again; its sequence hash stays the same."
        page "A plan can be made from the head of a model file, or from a configuration and a named recipe, to see launches, memory and waits before the weights are there. It holds no digest of any tensor, so nothing could tell whether the weights at hand are those that were meant. It is inspected, dumped and linted like any other plan and never run.";
    SpillUnified 24 "layers would be spilled on unified memory"
        remedy "Keep all layers (--gpu-layers all), or plan a shorter context or a smaller model."
        page "Where GPU and host share one memory, weights in host memory are the same bytes behind the same bus: spilling frees nothing and only makes the reads slower. The machine profile says whether memory is unified.";
    SpillExperts 25 "a layer with experts would be spilled"
        remedy "Keep all layers (--gpu-layers all), or plan a smaller model or a shorter context."
        page "Which experts a token needs is known only when its router has run, so a spilled layer of experts would cross the link with an address that depends on data, for a few rows of many matrices. Experts run from device memory only.";
    HostExec 26 "the host cannot read spilled weights that it is to multiply"
        remedy "Use --exec pcie, where the GPU reads spilled matrices over the link in the same launches, or convert the model to a type that is not rotated."
        page "With `cpu` the host multiplies spilled matrices, with `passback` host and GPU divide their rows. The host reads the bytes that the GPU reads, in exact mode every type whose weights stand for themselves. Rotated types multiply a vector that was rotated first, and no step of the host does that, so a spilled layer that holds one is refused when the plan is made. The message names the first such matrix and its type.";
    PinnedShort 27 "the plan pins more memory than the host can give"
        remedy "Keep more layers on the GPU, or raise host.pinned_bytes in the machine profile if the host allows more."
        page "Spilled weights, token ring, kernargs and indirect buffer are pinned, because the GPU addresses them. Their sum in whole pages is compared with the profile's limit when the plan is made, before anything is allocated.";
    HostSteps 28 "steps of the host cannot be in a tape"
        remedy "Use --retain segments, which retains every run of launches between them, or keep all layers on the GPU."
        page "CPU and split steps are barriers: everything before one must have finished before the host starts, and everything after one waits for the host. A tape that held one would replay its launches and not the host's work, and give wrong tokens without an error. The lowering takes runs of launches, a type that holds nothing else, so that this cannot happen by mistake; asking for one tape is refused with the number of such steps and the names of the first.";
    Handshake 29 "the hand-off between GPU and host failed its probe"
        remedy "Run eagerly with --retain none, and report the device with the message."
        page "Between segments the GPU waits for a signal that the host sets, and the host for one that the GPU sets. Before the first token a packet is published that depends on the one and completes the other: it must not complete before the host has set its signal, and it must complete after. A device that fails either is not trusted with segments; without an explicit --retain the run goes on eagerly, and the refusal is counted.";
    ShareNotPinned 30 "an automatic share is compared or sealed"
        remedy "Pin the share, e.g. --exec passback:0.5."
        page "With `passback` and no number the rows that the GPU takes are chosen by measurement, so two runs of one plan may divide them differently. In exact mode the tokens are the same all the same, but a comparison or a seal states a fact about one division, and there is none. Plans say `auto`, their identity differs from that of any pinned share, and what compares or seals refuses them.";
    NothingSpilled 31 "host execution is asked for and nothing is spilled"
        remedy "Say how many layers stay on the GPU (--gpu-layers N), or leave --exec out."
        page "`cpu` and `passback` say who multiplies the matrices of spilled layers. With all layers on the GPU there are none, and a run would look as if the host had worked. `--gpu-layers auto` may spill nothing and is no such request.";
    NothingDivided 32 "a division of rows is asked for and no matrix is divided"
        remedy "Use --exec cpu, which is what would run, or --exec pcie."
        page "Matrices below 64 KiB are not divided, because waiting for both sides takes longer than moving them; the host computes them whole, and each is counted as too small. A share may also come to less than a block of 16 rows of every matrix. If either leaves no split step at all, the share that was asked for has no effect, and the run is refused instead of measured.";
    HostMemoryShort 33 "the host has not the memory that the plan pins"
        remedy "End other programs, or keep more layers on the GPU (--gpu-layers)."
        page "Pinned memory cannot be reclaimed or swapped, so all of it is charged: spilled weights, hand-off buffer, token ring, kernargs and indirect buffers in whole pages. Before anything is allocated the sum is compared with what the system says it can give (MemAvailable); the limit of the machine profile, RF027, was checked when the plan was made.";
    HostActivations 34 "steps of the host and int8 activations are asked for together"
        remedy "Use --exec pcie, or leave --activations out."
        page "Steps of the host multiply f32 activations in the GPU's own order, so that a row is bit-equal whoever computes it. With int8 activations the launches would round the vector and the host would not: tokens would depend on the share, and no comparison would say why. With --exec pcie the GPU multiplies all rows and both forms are open.";
    ProofAbsent 38 "no proof of the packets was given"
        remedy "Prove the plan (refrain prove PLAN) and give the file with --proof, or accept the risk with --allow-unproven."
        page "A retained form reaches a real device only with a proof of exactly these packets, made on the software GPU: hazards, declared effects, parity with eager launches, and that every wait and register write which is left out is noticed. The software GPU itself runs any form and says whether there is a proof. With --allow-unproven the missing proof is printed and stands in every report.";
    ProofDiffers 39 "the proof is of something else"
        remedy "Prove this plan again with this program."
        page "A proof names the plan, the digest of the address-independent packet words of each transport, and the program that made it. One of them differs from what is about to run, so nothing was shown about it. That is refused on every device, also where no proof would be needed.";
    ProofFails 40 "the plan does not pass its proof"
        remedy "Do not replay this plan; report it with the message."
        page "A proof executes the plan under strict mode at its first, middle and last position with several orders of waves and work-groups. A report, a byte that differs between eager launches and a retained form, or an omission that nobody notices ends it, and no file is written. The message names route, position and seed, so that the run can be repeated.";
    SealRefused 41 "the record cannot be sealed"
        remedy "Remove what the message names, then seal again."
        page "A golden record promises that a model on a machine gives exactly these launches, code objects, packets and tokens. It is sealed only where two plannings give the same bytes, all routes give the same tokens, a proof of these packets holds, the working tree has no uncommitted change outside the registry, and the record verifies at once. `refrain golden seal --dry-run` says what would be sealed.";
    NotPublished 45 "a token was not published and ran eagerly"
        remedy "Read the message: the ring had no room before the deadline. Raise the deadline or lower --in-flight, and make a new session."
        page "A token whose packets could not be published has not run and never will, so it is executed eagerly from the same state, once the tokens before it have completed, and counted. The session stays eager afterwards. With --retain whole this is an error. After a packet was published nothing falls back, because the token might run twice.";
    Transition 46 "a change of text, position, bucket or plan is not possible"
        remedy "Wait until nothing is in flight and start the text again; after a failure make a new session."
        page "A new text, a jump, another bucket or another plan changes bytes that tokens in flight read. Each is done with nothing in flight, and none but another plan after a failure: what a failed token left behind is unknown. A text goes forward one position at a time. Going back is possible where the model keeps nothing but rows of keys and values; a recurrent state or a convolution window stands at one position only. Going forward over rows that were never decoded would attend to bytes of an earlier text.";
    BeyondContext 47 "positions beyond those that were planned"
        remedy "Plan a longer context or bucket, or ask for fewer tokens."
        page "The KV cache, the grids of attention and the bound checks of every proof end at the plan's bucket. More positions are another plan: nothing grows while a tape exists. Requests that would pass the end are refused before the first token.";
    GraphAbsent 48 "the runtime captures no graphs"
        remedy "Leave out the graph arm, or install a ROCm whose HIP has stream capture."
        page "The graph arm of a benchmark is a captured HIP graph. The HIP library at hand lacks one of hipStreamBeginCapture, hipStreamEndCapture, hipGraphInstantiate, hipGraphLaunch, hipGraphExecDestroy and hipGraphDestroy.";
    ReplayShare 49 "fewer tokens were replayed than required"
        remedy "Read the refusals in the report: they name what kept tokens from being replayed."
        page "With --require-replay PERCENT a benchmark counts, over every retained arm that was asked for, the tokens that were replayed. An arm that was refused counts as none. A run in which replay silently did not happen is then a failure and not a slow success.";
    CpuRetains 50 "a retained form is asked of the CPU"
        remedy "Leave out --retain, --verify and --proof with --device cpu, or use --device soft:gfxNNNN, which has packets."
        page "A retained form is packets that a GPU's command processor executes without the host. With `--device cpu` the host executes every launch of the plan itself, so there is nothing to encode, to replay or to prove. That its results are those of the kernels is tested byte by byte against the software GPU. Only `refrain run` takes this device.";
}

impl Code {
    /// The code's row.
    pub fn row(self) -> &'static Row {
        // One row per variant, in declaration order, by construction of the macro.
        &TABLE[self as usize]
    }

    /// The code under which a placement is refused; `None` where the question was malformed.
    pub const fn of_placement(error: &PlacementError) -> Option<Self> {
        match error {
            PlacementError::Layers { .. } => None,
            PlacementError::Unified { .. } => Some(Self::SpillUnified),
            PlacementError::Experts { .. } => Some(Self::SpillExperts),
            PlacementError::HostExec { .. } => Some(Self::HostExec),
            PlacementError::HostActivations { .. } => Some(Self::HostActivations),
            PlacementError::Pinned { .. } => Some(Self::PinnedShort),
        }
    }

    /// The code of that text, e.g. `RF012`; upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let upper = text.to_ascii_uppercase();
        TABLE
            .iter()
            .find(|row| row.code.to_string() == upper)
            .map(|row| row.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RF{:03}", self.row().number)
    }
}

/// One refusal: the code and what exactly was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {}: {detail}", .code.row().title)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// Step, kernel, values.
    pub detail: String,
}

impl Refusal {
    /// A refusal whose detail is the text of an error.
    pub fn new(code: Code, detail: impl fmt::Display) -> Self {
        Self {
            code,
            detail: detail.to_string(),
        }
    }
}

/// How often each code was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    rows: Vec<(Code, u64)>,
}

impl RefusalCounts {
    /// Counts one refusal.
    pub fn add(&mut self, code: Code) {
        match self.rows.iter_mut().find(|row| row.0 == code) {
            Some(row) => row.1 += 1,
            None => {
                self.rows.push((code, 1));
                self.rows.sort_unstable_by_key(|row| row.0);
            }
        }
    }

    /// Codes with their counts, ascending.
    pub fn rows(&self) -> &[(Code, u64)] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, RefusalCounts, TABLE};

    #[test]
    fn table_is_consistent() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, index);
            assert_eq!(row.code.row(), row);
            assert!(
                index == 0 || TABLE[index - 1].number < row.number,
                "{}",
                row.code
            );
            assert!(
                row.remedy.ends_with('.') && row.page.ends_with('.'),
                "{}",
                row.code
            );
            assert!(row.page.len() > 80, "{}", row.code);
            assert_eq!(Code::parse(&row.code.to_string()), Some(row.code));
            assert_eq!(
                Code::parse(&row.code.to_string().to_lowercase()),
                Some(row.code)
            );
        }
        assert_eq!(Code::IbTooLong.to_string(), "RF019");
        assert_eq!(Code::parse("RF999"), None);
    }

    #[test]
    fn counts_add_up() {
        let mut counts = RefusalCounts::default();
        for code in [Code::Scratch, Code::NotEligible, Code::Scratch] {
            counts.add(code);
        }
        assert_eq!(counts.rows(), [(Code::NotEligible, 1), (Code::Scratch, 2)]);
    }
}
