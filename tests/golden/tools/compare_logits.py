#!/usr/bin/env python3
"""compare_logits.py TEXTS.txt REFERENCE_DIR OTHER_DIR...: over all positions the mean and largest KL divergence of the
next-token distribution from the reference's, in nats, and the share of positions whose best token is the same."""
import pathlib
import sys

import numpy as np


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main():
    lengths = [len(line.split()) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    reference = pathlib.Path(sys.argv[2])
    print(f"{'logits':32} {'positions':>9} {'mean KL':>12} {'max KL':>12} {'top-1':>9} {'max diff':>9}")
    for name in sys.argv[3:]:
        divergences, same, difference = [], [], 0.0
        for number, length in enumerate(lengths):
            raw_p = np.fromfile(reference / f"{number:02}.f32", np.float32).reshape(length, -1)
            raw_q = np.fromfile(pathlib.Path(name) / f"{number:02}.f32", np.float32).reshape(length, -1)
            p, q = log_softmax(raw_p), log_softmax(raw_q)
            divergences.append((np.exp(p) * (p - q)).sum(axis=1))
            same.append(raw_p.argmax(axis=1) == raw_q.argmax(axis=1))
            difference = max(difference, float(np.abs(raw_p - raw_q).max()))
        kl, top = np.concatenate(divergences), np.concatenate(same)
        print(f"{name:32} {kl.size:9} {kl.mean():12.3e} {kl.max():12.3e} {100 * top.mean():8.3f}% {difference:9.4f}")


if __name__ == "__main__":
    main()
