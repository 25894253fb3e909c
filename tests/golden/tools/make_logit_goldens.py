#!/usr/bin/env python3
"""make_logit_goldens.py TEXTS.txt F32_DIR QUANTISED_DIR: writes data/logits_smollm2.txt from llama.cpp's logits: of the
F32 copy of the default model the best tokens of each position with their log-probabilities, and how far the quantised
file's are from them."""
import pathlib
import sys

import llama_cpp
import numpy as np

from compare_logits import log_softmax

BEST = 8


def bucket_divergence(p, q, best):
    """KL over the best tokens and one bucket of all others: a lower bound of the whole."""
    total = np.zeros(len(p))
    rest_p, rest_q = np.ones(len(p)), np.ones(len(p))
    rows = np.arange(len(p))
    for k in range(best.shape[1]):
        lp, lq = p[rows, best[:, k]], q[rows, best[:, k]]
        total += np.exp(lp) * (lp - lq)
        rest_p -= np.exp(lp)
        rest_q -= np.exp(lq)
    rest_p, rest_q = np.maximum(rest_p, 1e-12), np.maximum(rest_q, 1e-12)
    return total + rest_p * np.log(rest_p / rest_q)


def main():
    lengths = [len(line.split()) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    lines, divergences, same = [], [], []
    for number, length in enumerate(lengths):
        f32, quantised = (np.fromfile(pathlib.Path(d) / f"{number:02}.f32", np.float32).reshape(length, -1)
                          for d in sys.argv[2:4])
        p, q = log_softmax(f32), log_softmax(quantised)
        best = np.argsort(-f32, axis=1, kind="stable")[:, :BEST]
        divergences.append(bucket_divergence(p, q, best))
        same.append(f32.argmax(axis=1) == quantised.argmax(axis=1))
        for row in range(length):
            lines.append(" ".join(f"{t} {p[row, t]:.5f}" for t in best[row]))
    kl, top = np.concatenate(divergences).mean(), np.concatenate(same).mean()
    out = pathlib.Path(__file__).parent.parent / "data" / "logits_smollm2.txt"
    out.write_text(f"quantised_kl {kl:.4e} quantised_top1 {top:.5f} llama_cpp_python {llama_cpp.__version__}\n"
                   + "\n".join(lines) + "\n")
    print(out, out.stat().st_size, f"{kl:.4e}", top)


main()
