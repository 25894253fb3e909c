#!/usr/bin/env python3
"""Our CPU engine against llama.cpp on the same file, threads and machine, in turns: prefill and decode in tokens a second.

    peer_llamacpp.py MODEL.gguf [--engine build/bench/engine_speed] [--threads N] [--isa auto] [--prompt 512]
                     [--decode 64] [--rounds 5] [--json FILE]

A round is one run of each, in alternating order; each run is the median of three after its own warm-up. Shown are the
median and the range over the rounds, and the median and range of the rounds' ratios (ours / llama.cpp's), which hold
better than the speeds on a busy machine. Needs llama-cpp-python (0.3.36 was used), built on this machine."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

REPEATS = 3


class LlamaCpp:
    """One sequence, KV in F16, through the C interface: Python's share is a few microseconds a token."""

    def __init__(self, path, threads, context):
        import llama_cpp
        self.lib = llama_cpp
        llama_cpp.llama_backend_init()
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)  # lives as long as the library may call it
        llama_cpp.llama_log_set(self.silence, None)
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        if not self.model:
            sys.exit(f"llama.cpp can't load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self.system = llama_cpp.llama_print_system_info().decode().strip()

    def decode(self, tokens):
        array = (self.lib.llama_token * len(tokens))(*tokens)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(tokens))) != 0:
            sys.exit("llama_decode failed")
        self.lib.llama_get_logits_ith(self.context, -1)  # waits for the result

    def run(self, prompt, decode):
        tokens = [(i * 7919 + 13) % self.vocabulary for i in range(prompt)]
        speeds = []
        for _ in range(REPEATS + 1):
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
            start = time.perf_counter()
            for first in range(0, prompt, 512):
                self.decode(tokens[first:first + 512])
            middle = time.perf_counter()
            for i in range(decode):
                self.decode([tokens[i % prompt]])
            end = time.perf_counter()
            speeds.append((prompt / (middle - start), decode / (end - middle)))
        return tuple(statistics.median(column) for column in zip(*speeds[1:]))


class Ours:
    def __init__(self, engine, path, threads, isa):
        self.engine, self.path, self.threads, self.isa = engine, path, threads, isa
        self.version = ""

    def run(self, prompt, decode):
        command = [self.engine, self.path, str(self.threads), self.isa, str(prompt), str(decode), "1", str(REPEATS)]
        out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
        self.version = out.split(", loaded")[0]
        return tuple(float(re.search(rf"{phase}: ([\d.]+) tok/s", out).group(1)) for phase in ("prefill", "decode"))


def spread(values):
    return f"{statistics.median(values):9.2f} ({min(values):.2f} - {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--engine", default="build/bench/engine_speed")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()

    ours = Ours(args.engine, args.model, args.threads, args.isa)
    theirs = LlamaCpp(args.model, args.threads, args.prompt + args.decode + 64)
    ours.run(args.prompt, args.decode)  # packs the weights once, outside the comparison
    samples = {"ours": [], "llama.cpp": []}
    for number in range(args.rounds):
        turns = [("ours", ours), ("llama.cpp", theirs)]
        for name, engine in turns if number % 2 == 0 else reversed(turns):
            samples[name].append(engine.run(args.prompt, args.decode))
            print(f"round {number + 1} {name}: prefill {samples[name][-1][0]:.1f}, decode {samples[name][-1][1]:.1f}",
                  file=sys.stderr)

    print(f"ours: {ours.version}\nllama.cpp: {theirs.version}, {theirs.system}")
    print(f"{os.path.basename(args.model)}, {args.threads} threads, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    result = {"ours": ours.version, "llama.cpp": theirs.version, "threads": args.threads, "load": os.getloadavg()[0]}
    for column, phase in enumerate((f"prefill {args.prompt}", f"decode {args.decode}")):
        mine = [sample[column] for sample in samples["ours"]]
        other = [sample[column] for sample in samples["llama.cpp"]]
        ratios = [a / b for a, b in zip(mine, other)]
        print(f"{phase:12} ours {spread(mine)} tok/s   llama.cpp {spread(other)} tok/s   ratio {spread(ratios)}")
        result[phase] = {"ours": mine, "llama.cpp": other, "ratio": ratios}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
