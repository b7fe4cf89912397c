"""Trains with changing shapes on one allocator and prints what it took: losses, memory, time.

    python bench/gpu/train.py --allocator torch|expandable|cistern --model transformer|resnet
    python bench/gpu/train.py --allocator torch --model resnet --record FILE   # a trace for `cistern replay`
    python bench/gpu/train.py                 # all of them, each in a process of its own, as a table

Weights and data are random, from a fixed seed, so that every allocator sees the same program. The library
is found by --library (libcistern.so), else the installed Python package is used.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ALLOCATORS = ("torch", "expandable", "cistern")
MODELS = ("transformer", "resnet")


def hook(library):
    """Has PyTorch allocate from Cistern. Returns a function that reads the pool's statistics."""
    import ctypes

    import torch

    if library is None:
        import cistern.torch

        cistern.torch.enable()
        return cistern.torch.stats
    loaded = ctypes.CDLL(library)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library, "cistern_cuda_malloc", "cistern_cuda_free")
    torch.cuda.memory.change_current_allocator(allocator)
    loaded.cistern_default_pool_on.restype = ctypes.c_uint64
    loaded.cistern_pool_stats_json.restype = ctypes.c_size_t
    loaded.cistern_pool_stats_json.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]

    def stats():
        text = ctypes.create_string_buffer(1 << 16)
        loaded.cistern_pool_stats_json(loaded.cistern_default_pool_on(2, 0), text, len(text))
        return json.loads(text.value)

    return stats


def transformer(steps):
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(nn.Embedding(8192, 768), nn.TransformerEncoder(layer, 6),
                          nn.Linear(768, 8192)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shapes = torch.Generator().manual_seed(1)
    lengths = [int(torch.randint(64, 768, (1,), generator=shapes)) for _ in range(steps)]
    data = [torch.randint(0, 8192, (8, length), generator=shapes) for length in lengths]
    yield None  # from here on the clock runs
    for batch in data:
        tokens = batch.cuda()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def resnet(steps):
    import torch
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    shapes = torch.Generator().manual_seed(2)
    data = []
    for _ in range(steps):
        batch = int(torch.randint(8, 49, (1,), generator=shapes))
        side = 32 * int(torch.randint(4, 10, (1,), generator=shapes))
        data.append((torch.randn(batch, 3, side, side, generator=shapes),
                     torch.randint(0, 1000, (batch,), generator=shapes)))
    yield None
    for host_images, host_labels in data:
        images, labels = host_images.cuda(), host_labels.cuda()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def record(path, events):
    """Writes what PyTorch allocated and freed in the form that `cistern replay` reads."""
    import gzip

    ids, count = {}, 0
    with gzip.open(path, "wt", encoding="ascii") as file:
        file.write("event,pool,id,bytes,stream\n")
        for event in events:
            if event["action"] == "alloc":
                ids[event["addr"]] = f"{count},{event['size']},{event['stream']}"
                file.write(f"a,cuda,{ids[event['addr']]}\n")
                count += 1
            elif event["action"] == "free_completed" and event["addr"] in ids:
                file.write(f"r,cuda,{ids.pop(event['addr'])}\n")


def train(arguments):
    if arguments.allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    stats = hook(arguments.library) if arguments.allocator == "cistern" else None
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass is not deterministic
    torch.backends.cuda.enable_flash_sdp(False)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    steps = {"transformer": transformer, "resnet": resnet}[arguments.model](arguments.steps)
    if arguments.record:
        torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=10**7)
    losses, times = [], []
    next(steps)
    begin = time.perf_counter()
    for loss in steps:
        losses.append(float(loss))  # waits for the device
        now = time.perf_counter()
        times.append(now - begin)
        begin = now
    if arguments.record:
        record(arguments.record, torch.cuda.memory._snapshot()["device_traces"][0])
    moves = moved = 0
    if stats is None:
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    else:
        pool = stats()
        allocated, reserved = pool["lent_bytes"]["peak"], pool["held_bytes"]["peak"]
        moves, moved = pool["moves"], pool["moved_bytes"]
    warm = times[len(times) // 4:]
    return {"allocator": arguments.allocator, "model": arguments.model, "losses": losses,
            "allocated_bytes": allocated, "reserved_bytes": reserved,
            "moves": moves, "moved_bytes": moved,
            "step_ms": statistics.mean(warm) * 1e3, "median_step_ms": statistics.median(warm) * 1e3}


def run_all(arguments):
    results = []
    for model in [arguments.model] if arguments.model else MODELS:
        runs, times = {}, {allocator: [] for allocator in ALLOCATORS}
        for _ in range(arguments.rounds):
            for allocator in ALLOCATORS:
                command = [sys.executable, __file__, "--allocator", allocator, "--model", model,
                           "--steps", str(arguments.steps)]
                if arguments.library is not None:
                    command += ["--library", arguments.library]
                output = subprocess.run(command, capture_output=True, text=True)
                if output.returncode != 0:
                    sys.exit(f"{' '.join(command)} failed:\n{output.stderr[-3000:]}")
                run = json.loads(output.stdout.splitlines()[-1])
                times[allocator].append(run["step_ms"])
                best = runs.get(allocator)
                if best is None or run["step_ms"] < best["step_ms"]:
                    runs[allocator] = run
        base = runs["torch"]
        for allocator, run in runs.items():
            apart = [abs(a - b) for a, b in zip(run["losses"], base["losses"])]
            furthest = max(apart)
            same = next((i for i, by in enumerate(apart) if by != 0), len(apart))
            results.append({
                "model": model, "allocator": allocator, "last_loss": run["losses"][-1],
                "largest_difference_of_losses": furthest, "equal_losses": same,
                "reserved_bytes": run["reserved_bytes"], "own_allocated_bytes": run["allocated_bytes"],
                "reserved_over_allocated": run["reserved_bytes"] / base["allocated_bytes"],
                "moves": run["moves"], "moved_bytes": run["moved_bytes"],
                "step_ms": run["step_ms"], "step_ms_of_each_process": times[allocator],
                "median_step_ms": run["median_step_ms"],
                "step_over_torch": run["step_ms"] / base["step_ms"],
                "step_over_expandable": run["step_ms"] / runs["expandable"]["step_ms"]})
            row = results[-1]
            print(f"{model:<12} {allocator:<11} loss {row['last_loss']:.4f} ({same} equal, "
                  f"then differs {furthest:.1e}) reserved {run['reserved_bytes'] / 2**20:8.0f} MiB = "
                  f"{row['reserved_over_allocated']:.3f} x allocated, step {row['step_ms']:.2f} ms = "
                  f"{row['step_over_torch']:.3f} x torch, {row['step_over_expandable']:.3f} x expandable "
                  f"(of {', '.join(f'{ms:.1f}' for ms in times[allocator])})", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2, help="processes for each, the quickest counts")
    parser.add_argument("--library", help="libcistern.so, instead of the installed package")
    parser.add_argument("--record", metavar="FILE", help="write a trace (gzip) of what PyTorch's own allocator did")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.allocator is not None:
        arguments.model = arguments.model or "transformer"
        if arguments.record and arguments.allocator == "cistern":
            parser.error("--record reads PyTorch's own allocator: --allocator torch or expandable")
        print(json.dumps(train(arguments)))
        return
    if arguments.record:
        parser.error("--record needs --allocator and --model")
    results = run_all(arguments)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
