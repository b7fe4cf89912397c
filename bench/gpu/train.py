"""Trains with changing shapes on one allocator and prints what it took: losses, memory, time.

    python bench/gpu/train.py --allocator torch|expandable|cistern --model transformer|resnet
    python bench/gpu/train.py --allocator torch --model resnet --record FILE   # a trace for `cistern replay`
    python bench/gpu/train.py                 # all of them at once, in processes that take steps in turn, as a table

The device needs room for all three then. Weights and data are random, from a fixed seed, so that every
allocator sees the same program. The library is found by --library (libcistern.so), else the installed Python
package is used.

Every step of an epoch has another shape. In the first epoch most of a ResNet's step is cuDNN, which chooses kernels
for a shape that it has not seen, and takes 10 ms more or less each time; so the later epochs, with the same shapes,
are also timed by themselves. The very first step, which loads most of the libraries, is in no figure.
"""

import argparse
import json
import os
import sys
from math import inf, isfinite

from turns import mean_of_medians, run_in_turns, timed

ALLOCATORS = ("torch", "expandable", "cistern")
MODELS = ("transformer", "resnet")
PARTS = ("first_epoch", "later_epochs", "all_epochs")


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


def transformer(steps, epochs):
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
    for batch in data * epochs:
        tokens = batch.cuda()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def resnet(steps, epochs):
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
    for host_images, host_labels in data * epochs:
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
    steps = {"transformer": transformer, "resnet": resnet}[arguments.model](arguments.steps, arguments.epochs)
    if arguments.record:
        torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=10**7)
    next(steps)
    count = arguments.steps * arguments.epochs
    losses, times = timed(map(float, steps), count, arguments.in_turns)  # float() waits for the device
    if arguments.record:
        record(arguments.record, torch.cuda.memory._snapshot()["device_traces"][0])
    moves = moved = 0
    if stats is None:
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    else:
        pool = stats()
        allocated, reserved = pool["lent_bytes"]["peak"], pool["held_bytes"]["peak"]
        moves, moved = pool["moves"], pool["moved_bytes"]
    return {"allocator": arguments.allocator, "model": arguments.model, "losses": losses,
            "allocated_bytes": allocated, "reserved_bytes": reserved,
            "moves": moves, "moved_bytes": moved,
            "steps_ms": times}


def mean_steps(runs, steps):
    """What a step takes on average, in each part: of every one the median of all runs, and of all later epochs."""
    epochs = [[run[begin:begin + steps] for run in runs] for begin in range(0, len(runs[0]), steps)]
    first = mean_of_medians([run[1:] for run in epochs[0]])
    later = mean_of_medians([run for epoch in epochs[1:] for run in epoch])
    of_first, of_later = steps - 1, steps * (len(epochs) - 1)
    every = (first * of_first + later * of_later) / (of_first + of_later)
    return dict(zip(PARTS, (first, later, every)))


def distance(loss, other):
    return abs(loss - other) if isfinite(loss - other) else inf


def run_all(arguments):
    results = []
    for model in [arguments.model] if arguments.model else MODELS:
        commands = {allocator: [sys.executable, __file__, "--in-turns", "--allocator", allocator, "--model", model,
                                "--steps", str(arguments.steps),
                                "--epochs", str(arguments.epochs)] for allocator in ALLOCATORS}
        if arguments.library is not None:
            commands["cistern"] += ["--library", arguments.library]
        rounds = run_in_turns(commands, arguments.steps * arguments.epochs, arguments.rounds)
        times = {allocator: [run[allocator]["steps_ms"] for run in rounds] for allocator in ALLOCATORS}
        mean = {allocator: mean_steps(runs, arguments.steps) for allocator, runs in times.items()}
        of_each = {allocator: [mean_steps([run], arguments.steps) for run in runs] for allocator, runs in times.items()}
        runs = rounds[0]
        base = runs["torch"]
        for allocator, run in runs.items():
            losses = zip(base["losses"], *(each[allocator]["losses"] for each in rounds))
            apart = [max(distance(loss, theirs) for loss in ours) for theirs, *ours in losses]
            furthest = max(apart)
            same = next((i for i, by in enumerate(apart) if by != 0), len(apart))
            row = {"model": model, "allocator": allocator, "last_loss": run["losses"][-1],
                   "largest_difference_of_losses": furthest, "equal_losses": same,
                   "reserved_bytes": max(each[allocator]["reserved_bytes"] for each in rounds),
                   "own_allocated_bytes": run["allocated_bytes"],
                   "moves": run["moves"], "moved_bytes": run["moved_bytes"]}
            row["reserved_over_allocated"] = row["reserved_bytes"] / base["allocated_bytes"]
            print(f"{model:<12} {allocator:<11} loss {row['last_loss']:.4f} ({same} equal, "
                  f"then differs {furthest:.1e}) reserved {row['reserved_bytes'] / 2**20:8.0f} MiB = "
                  f"{row['reserved_over_allocated']:.3f} x allocated")
            for part in PARTS:
                ms, of_processes = mean[allocator][part], [process[part] for process in of_each[allocator]]
                step = row[part] = {"step_ms": ms, "step_ms_of_each_process": of_processes,
                                    "over_torch": ms / mean["torch"][part],
                                    "over_expandable": ms / mean["expandable"][part]}
                print(f"    {part.replace('_', ' '):<12} step {ms:.2f} ms = {step['over_torch']:.3f} x torch, "
                      f"{step['over_expandable']:.3f} x expandable "
                      f"(processes: {', '.join(f'{each:.1f}' for each in of_processes)})", flush=True)
            row["steps_ms"] = times[allocator]
            results.append(row)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--steps", type=int, default=60, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=4, help="at least 2")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each")
    parser.add_argument("--in-turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--library", help="libcistern.so, instead of the installed package")
    parser.add_argument("--record", metavar="FILE", help="write a trace (gzip) of what PyTorch's own allocator did")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error(f"--steps {arguments.steps}: at least 2 are needed")
    if arguments.epochs < 2:
        parser.error(f"--epochs {arguments.epochs}: the first is for the libraries to warm up, at least 2 are needed")
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
