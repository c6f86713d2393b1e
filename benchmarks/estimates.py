"""Compilers' estimates of updates on a TPU and a GPU, on a machine without them.

JAX can compile for a device that is not present. The program prints the kernels of each
update, the bytes that they move, and the estimated cost: for a TPU v6e, the cycles of
libtpu's static profile (scheduled work including transfers); for an H100, the
microseconds that XLA estimates for fusions (not for sorts). Costs are not times.

    python benchmarks/estimates.py tpu      # with jax[tpu]
    python benchmarks/estimates.py gpu      # with JAX's CUDA plugin, and its assembler
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Properties of an H100 SXM, as its driver reports them.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

SHAPES = ["1024x100", "256x1000"]
SIX = ["ndcg@5", "ndcg@10", "map@10", "mrr", "recall@10", "hit_rate@10"]
FLOOR = "sum of labels times scores"
# Metrics of keras-rs that have an equal name and equal arguments in keras_rank.
PEERS = [
    "NDCG(k=10)",
    "NDCG()",
    "DCG(k=10)",
    "MeanAveragePrecision(k=10)",
    "MeanReciprocalRank(k=10)",
    "PrecisionAtK(k=10)",
    "RecallAtK(k=10)",
]
OURS = [
    *PEERS,
    'NDCG(k=10, shuffle_ties="average")',
    "NDCG(k=10, shuffle_ties=False)",
    'NDCG(shuffle_ties="average")',
    "HitRate(k=10)",
    "F1AtK(k=10)",
    "RPrecision(k=10)",
    "BPref(k=10)",
    "FallOut(k=10)",
    "ExpectedReciprocalRank(k=10)",
    "RankBiasedPrecision(k=10)",
    "AverageRelevancePosition()",
    "PairwiseAccuracy(k=10)",
    f"RankingMetrics({SIX})",
    "HitRate(k=10, sparse_labels=True)",
    "NDCG(k=10, sparse_labels=True)",
]
# Sizes of numbers in bytes. Other dtypes have four bytes.
_BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "s64": 8,
    "u64": 8,
    "f64": 8,
}
# Opcodes of instructions that do no work.
FREE_OPCODES = {
    "parameter",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "constant",
    "after-all",
}
FREE_OPCODES |= {"copy-done", "slice-done", "async-done", "partition-id"}


@dataclasses.dataclass
class Program:
    """A compiler's estimate of a program.

    Attributes:
        name: the call that creates the metric.
        library: the name of the library.
        shape: the numbers of lists and of items.
        cost: the cycles, or the microseconds.
        kernels: the number of launches, by kind.
        bytes: the number of bytes that the kernels read and write.
        gathered: the largest number of entries of a gather.
        scatters: the number of scatters.
        lines: the lines of the library with the highest costs, and these costs.
    """

    name: str
    library: str
    shape: str
    cost: float
    kernels: dict[str, int]
    bytes: int
    gathered: int
    scatters: int
    lines: list[tuple[float, str]]


class TPU:
    """A TPU v6e, as described by libtpu."""

    unit = "cycles"

    def __init__(self, folder):
        self.profile = folder / "profile"
        os.environ.update(
            TPU_SKIP_MDS_QUERY="1",
            TPU_ACCELERATOR_TYPE="v6e-4",
            TPU_WORKER_HOSTNAMES="localhost",
            TPU_WORKER_ID="0",
            TPU_STDERR_LOG_LEVEL="3",
            TPU_MIN_LOG_LEVEL="3",
            # The lock file of libtpu would allow only one process at a time.
            ALLOW_MULTIPLE_LIBTPU_LOAD="1",
            LIBTPU_INIT_ARGS=f"--xla_jf_dump_static_llo_profile_to={self.profile}",
        )
        self.profile.mkdir()

    def get_device(self):
        from jax.experimental import topologies

        return topologies.get_topology_desc(
            platform="tpu", topology_name="v6e:2x2"
        ).devices[0]

    def get_costs(self, instructions):
        """Returns the cycles of each instruction, by name."""
        costs = {}
        for path in self.profile.iterdir():
            text = path.read_text()
            name = re.search(r'hlo_op_name: "(.*?)"', text)[1]
            cycles = re.search(r"estimated_cycles: (\d+)", text) or ["", "0"]
            num_equivalent = re.search(r"num_equivalent_hlos: (\d+)", text) or ["", "1"]
            costs[name] = int(cycles[1]) * int(num_equivalent[1])
        return costs

    def count_kernels(self, instructions, bodies):
        kinds = (_get_kind(instruction, bodies) for instruction in instructions)
        return collections.Counter(kinds)


class GPU:
    """An H100, as described by its driver."""

    unit = "µs"

    def __init__(self, folder):
        self.dump = folder / "dump"
        os.environ.update(
            CUDA_VISIBLE_DEVICES="-1",
            XLA_FLAGS="--xla_gpu_autotune_level=0 "
            "--xla_gpu_collect_cost_model_stats=true "
            f"--xla_dump_to={self.dump} --xla_dump_hlo_module_re=.*",
        )

    def get_device(self):
        from jax._src import xla_bridge
        from jax.experimental import topologies

        # JAX resolves the name of a platform among the available platforms, which have
        # no GPU here. The replacement resolves both names of a GPU.
        canonicalize_platform = xla_bridge.canonicalize_platform
        xla_bridge.canonicalize_platform = lambda name: (
            "cuda" if name in ("gpu", "cuda") else canonicalize_platform(name)
        )
        return topologies.get_topology_desc(
            platform="cuda", target_config=H100, topology="1x1x1"
        ).devices[0]

    def get_costs(self, instructions):
        """Returns the microseconds of each fusion, by name."""
        costs = {}
        for instruction in instructions:
            microseconds = re.search(r'"exec_time_us":([\d.e\-]+)', instruction.line)
            costs[instruction.name] = float(microseconds[1]) if microseconds else 0.0
        return costs

    def count_kernels(self, instructions, bodies):
        """Counts the launches by kind, from a dump of the sequence of thunks."""
        kernels = collections.Counter()
        # The update is compiled last, so its dump is the newest one. A program of few
        # kernels has no CUDA graph, and no dump after the passes.
        dumps = list(self.dump.glob("*thunk_sequence_after_thunk_passes*"))
        dumps = dumps or self.dump.glob("*thunk_sequence*")
        path = max(dumps, key=lambda path: path.stat().st_mtime)
        for line in path.read_text().splitlines():
            thunk = re.match(r" *\d+: k(\w+) +\[.*?\] ?(\S*)", line)
            if thunk and thunk[1] != "CommandBuffer":
                is_kernel = thunk[1] in ("Kernel", "CustomKernel")
                is_sort = is_kernel and thunk[2].startswith("sort")
                kernels["sort" if is_sort else "kernel" if is_kernel else thunk[1]] += 1
        return kernels


TARGETS = {"tpu": TPU, "gpu": GPU}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction of XLA, as printed."""

    computation: str
    name: str
    shape: str
    opcode: str
    line: str

    @property
    def size(self):
        """The size of the result in bytes."""
        return sum(
            math.prod(map(int, filter(None, sizes.split(",")))) * _BYTES.get(dtype, 4)
            for dtype, sizes in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", self.shape)
        )

    @property
    def buffer_names(self):
        """The names of the result and the operands."""
        arguments = self.line.partition(f" {self.opcode}(")[2].partition(")")[0]
        return [self.name, *re.findall(r"%([\w.\-]+)", arguments)]


def parse_instructions(text):
    """Returns all instructions of a module, and the name of its entry computation."""
    instructions, computation, entry = [], None, None
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{", line):
            computation = head[2]
            entry = computation if head[1] else entry
        else:
            pattern = r"\s+(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\("
            if instruction := re.match(pattern, line):
                instructions.append(
                    Instruction(computation, *instruction.groups(), line)
                )
    return instructions, entry


def count_runs(instructions, entry):
    """Counts the runs of each computation, with the trip counts of loops.

    Fusions have no entry: they count as instructions.
    """
    by_computation = collections.defaultdict(list)
    for instruction in instructions:
        by_computation[instruction.computation].append(instruction)
    times, stack = collections.Counter({entry: 1}), [entry]
    while stack:
        computation = stack.pop()
        for instruction in by_computation[computation]:
            trips, line = 1, instruction.line
            if instruction.opcode == "while":
                trip_count = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
                trips = int(trip_count[1]) if trip_count else 1
            elif instruction.opcode not in ("conditional", "call"):
                continue
            for callee in re.findall(r"(?:body|condition|to_apply)=%([\w.\-]+)", line):
                times[callee] += trips * times[computation]
                stack.append(callee)
    return times


def _get_kind(instruction, bodies):
    if instruction.opcode == "fusion":
        body = bodies[re.search(r"calls=%([\w.\-]+)", instruction.line)[1]]
        kinds = [kind for kind in ("TopK", "gather", "scatter") if kind in body]
        return kinds[0] if kinds else "fusion"
    is_copy = instruction.opcode.startswith(("copy", "slice", "reshape", "transpose"))
    return "copy" if is_copy else instruction.opcode


def find_source_lines(text):
    """Returns the innermost lines of a library for each stack frame, by its number."""

    def parse_table(title):
        rows = re.search(rf"^{title}\n((?:\d+ .*\n)+)", text, re.M)
        return dict(row.split(" ", 1) for row in rows[1].splitlines()) if rows else {}

    files, locations = parse_table("FileNames"), parse_table("FileLocations")
    frames = parse_table("StackFrames")

    def parse_number(name, row):
        match = re.search(rf"{name}=(\d+)", row)
        return match[1] if match else "0"

    lines = {}
    for key in frames:
        chain, frame = [], key
        while frame in frames and len(chain) < 3:
            location = locations.get(
                parse_number("file_location_id", frames[frame]), ""
            )
            path = files.get(parse_number("file_name_id", location), "").strip('"')
            if inside := re.search(r"keras_r(?:ank|s)/(.*)", path):
                chain.append(f"{inside[1]}:{parse_number(' line', location)}")
            frame = str(int(parse_number("parent_frame_id", frames[frame])) - 1)
        lines[key] = " < ".join(chain)
    return lines


def compile_program(target, kind, library, name, shape):
    """Compiles one update, and returns the estimate of the compiler."""
    import jax

    sharding = jax.sharding.SingleDeviceSharding(target.get_device())

    def make_struct(shape, dtype="float32"):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    from keras_rank.backends import backend

    # Pretend that JAX runs on the target, so that the package compiles for it.
    backend.on_accelerator = lambda: True
    jax.default_backend = lambda: kind
    lists, items = map(int, shape.split("x"))
    batch = [make_struct((lists, items)), make_struct((lists, items))]
    if name == FLOOR:
        lowered = jax.jit(lambda y, p: (y * p).sum()).lower(*batch)
    else:
        if "sparse_labels" in name:
            batch[0] = make_struct((lists,), "int32")
        metrics = __import__(library).metrics
        metric = eval(f"metrics.{name}", {"metrics": metrics})
        variables = [
            make_struct(tuple(v.shape), str(v.dtype)) for v in metric.variables
        ]
        lowered = jax.jit(metric.stateless_update_state).lower(variables, *batch)
    compiled = lowered.compile()
    text, graph = compiled.as_text(), lowered.as_text()
    all_instructions, entry = parse_instructions(text)
    times = count_runs(all_instructions, entry)
    bodies = collections.defaultdict(str)
    for instruction in all_instructions:
        bodies[instruction.computation] += f"{instruction.line}\n"
    instructions = [
        instruction
        for instruction in all_instructions
        if times[instruction.computation] and instruction.opcode not in FREE_OPCODES
    ]
    sizes = {instruction.name: instruction.size for instruction in all_instructions}
    costs, lines = target.get_costs(instructions), collections.Counter()
    lines_by_frame = find_source_lines(text)
    for instruction in instructions:
        cost = costs.get(instruction.name, 0) * times[instruction.computation]
        frame = re.search(r"stack_frame_id=(\d+)", instruction.line)
        lines[lines_by_frame.get(frame[1] if frame else "", "")] += cost
    gathers = re.findall(r'"stablehlo.gather".* -> tensor<([\dx]+)x[a-z]\w*>', graph)
    return Program(
        name,
        library,
        shape,
        sum(lines.values()),
        dict(target.count_kernels(instructions, bodies)),
        sum(
            sizes[name]
            for instruction in instructions
            for name in instruction.buffer_names
        ),
        max((math.prod(map(int, shape.split("x"))) for shape in gathers), default=0),
        graph.count('"stablehlo.scatter"'),
        [(cost, line) for line, cost in lines.most_common(3)],
    )


def compile_programs(kind, names, shapes, libraries=("keras_rank", "keras_rs")):
    """Compiles updates in turn, and yields the estimates.

    Each update has its own process, because compilers don't free their memory, which is
    about a gigabyte per program.
    """
    for shape in shapes:
        for name in names:
            for library in libraries:
                if library == "keras_rs" and name not in PEERS:
                    continue
                command = [sys.executable, __file__, kind, "--program", library, name]
                process = subprocess.run(
                    [*command, "--shapes", shape], capture_output=True, text=True
                )
                if process.returncode:
                    raise RuntimeError(f"{library} {name} {shape}: {process.stderr}")
                yield Program(**json.loads(process.stdout.splitlines()[-1]))


def _compile_one(kind, library, name, shape):
    os.environ.update(
        KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3"
    )
    with tempfile.TemporaryDirectory() as folder:
        target = TARGETS[kind](pathlib.Path(folder))
        program = compile_program(target, kind, library, name, shape)
        print(json.dumps(dataclasses.asdict(program)), flush=True)
    # Skip the end of the interpreter, which would wait for threads of libtpu.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--output", type=pathlib.Path, help="a file of JSON lines")
    parser.add_argument("--program", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        _compile_one(arguments.target, *arguments.program, *arguments.shapes)
    names = [name for name in [FLOOR, *OURS] if arguments.only in name]
    unit = TARGETS[arguments.target].unit
    with contextlib.ExitStack() as stack:
        output = None
        if arguments.output:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            output = stack.enter_context(arguments.output.open("w"))
        for program in compile_programs(arguments.target, names, arguments.shapes):
            if output:
                print(json.dumps(dataclasses.asdict(program)), file=output, flush=True)
            kernels = ", ".join(f"{n} {kind}" for kind, n in program.kernels.items())
            print(
                f"{program.library} {program.name} {program.shape}: "
                f"{program.cost:,.6g} {unit}, {program.bytes / 1e6:.1f} MB, "
                f"{sum(program.kernels.values())} kernels ({kernels})"
            )
            for cost, line in program.lines:
                print(f"    {cost:,.6g} {unit} {line}")


if __name__ == "__main__":
    main()
