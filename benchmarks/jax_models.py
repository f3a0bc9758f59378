"""Models in JAX within a budget: ``pebbling.jax.fit`` beside the policies of ``jax.checkpoint``.

    python benchmarks/jax_models.py                 # the models that run on a CPU, small
    python benchmarks/jax_models.py --gpu [NAME]    # GPT 24 x 1024 at batch 16 x 1024, and a ViT

For each way the table says what XLA takes besides arguments (temporaries, results and gradients), as a share of what
it takes without any, the time of a gradient beside that without any, and the largest difference of a gradient,
relative to the largest entry. All ways of a model are compiled first and then timed in turns.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

import pebbling as pb
import pebbling.jax as pj


def normal(x, w):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return (y * w).astype(x.dtype)


def attention(w, x, heads, causal):
    b, t, d = x.shape
    q, k, v = jnp.split(normal(x, w["n1"]) @ w["qkv"], 3, -1)
    q, k, v = (y.reshape(b, t, heads, d // heads) for y in (q, k, v))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=None)
    return jax.ad_checkpoint.checkpoint_name(y.reshape(b, t, d), "attention") @ w["out"]


def block(w, x, heads, causal):
    x = x + attention(w, x, heads, causal)
    y = jax.ad_checkpoint.checkpoint_name(normal(x, w["n2"]) @ w["up"], "up")
    return x + jax.nn.gelu(y) @ w["down"]


def block_weights(key, d, kind):
    k = jax.random.split(key, 4)

    def draw(key, *shape):
        return (jax.random.normal(key, shape) * shape[0] ** -0.5).astype(kind)

    return {
        "qkv": draw(k[0], d, 3 * d), "out": draw(k[1], d, d), "up": draw(k[2], d, 4 * d), "down": draw(k[3], 4 * d, d),
        "n1": jnp.ones(d), "n2": jnp.ones(d),
    }  # fmt: skip


def gpt(layers, d, heads, batch, length, words, kind):
    """Parameters, a batch, and the loss for a block that may be wrapped."""
    keys = jax.random.split(jax.random.key(0), layers + 2)
    params = {
        "words": (jax.random.normal(keys[-1], (words, d)) * 0.02).astype(kind),
        "blocks": [block_weights(k, d, kind) for k in keys[:layers]],
    }
    tokens = jax.random.randint(keys[-2], (batch, length), 0, words)

    def loss(params, tokens, wrap=lambda f: f):
        x = params["words"][tokens]
        run = wrap(partial(block, heads=heads, causal=True))
        for w in params["blocks"]:
            x = run(w, x)
        logits = (x[:, :-1] @ params["words"].T).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return params, tokens, loss


def vit(layers, d, heads, batch, length, kind):
    keys = jax.random.split(jax.random.key(0), layers + 1)
    params = {
        "patch": (jax.random.normal(keys[-1], (3 * 16 * 16, d)) * 0.04).astype(kind),
        "blocks": [block_weights(k, d, kind) for k in keys[:layers]],
    }
    patches = jax.random.normal(keys[-1], (batch, length, 3 * 16 * 16)).astype(kind)

    def loss(params, patches, wrap=lambda f: f):
        x = patches @ params["patch"]
        run = wrap(partial(block, heads=heads, causal=False))
        for w in params["blocks"]:
            x = run(w, x)
        return jnp.mean(x.astype(jnp.float32).mean(1) ** 2)

    return params, patches, loss


def scanned(layers, d, heads, batch, length, words, kind):
    params, tokens, _ = gpt(layers, d, heads, batch, length, words, kind)
    params["blocks"] = jax.tree.map(lambda *w: jnp.stack(w), *params["blocks"])

    def loss(params, tokens, wrap=lambda f: f):
        run = wrap(partial(block, heads=heads, causal=True))
        x, _ = lax.scan(lambda x, w: (run(w, x), None), params["words"][tokens], params["blocks"])
        logits = (x[:, :-1] @ params["words"].T).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return params, tokens, loss


policies = jax.checkpoint_policies
PEERS = {
    "jax.checkpoint, each block": jax.checkpoint,
    "jax.checkpoint, dots_saveable": partial(jax.checkpoint, policy=policies.dots_saveable),
    "jax.checkpoint, names": partial(
        jax.checkpoint, policy=policies.save_only_these_names("attention", "up"), static_argnums=()
    ),
    "jax.checkpoint, offloaded names": partial(
        jax.checkpoint,
        policy=policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["attention", "up"],
            offload_src="device", offload_dst="pinned_host",
        ),
    ),
}  # fmt: skip


def taken(program):
    memory = program.memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


def compiled(loss, params, batch):
    started = time.perf_counter()
    program = jax.jit(jax.value_and_grad(loss)).lower(params, batch).compile()
    return program, time.perf_counter() - started


def difference(found, expected):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected))
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.maximum(jnp.max(jnp.abs(b)), 1e-30)) for a, b in pairs)


def measure(name, make, shares, peers, rounds, time_limit):
    params, batch, loss = make()
    plain, spent = compiled(loss, params, batch)
    whole = taken(plain)
    print(f"  compiled plain: {whole / 1e6:.4g} MB, {spent:.1f} s", flush=True)
    ways = {"plain": (plain, spent, "")}
    block_peak = None
    for label, wrap in peers.items():
        try:
            program, spent = compiled(partial(loss, wrap=wrap), params, batch)
            print(f"  compiled {label}: {taken(program) / whole:.1%} of plain, {spent:.1f} s", flush=True)
            ways[label] = program, spent, ""
            if label == "jax.checkpoint, each block":
                block_peak = taken(program)
        except Exception as error:
            print(f"| {name} | {label} | {type(error).__name__}: {str(error)[:100]} |||||", flush=True)
    budgets = [(f"fit, {share:.0%}", int(share * whole)) for share in shares]
    if block_peak is not None and block_peak < whole:
        budgets.insert(0, ("fit, at the peak of each block", block_peak))
    for label, memory in budgets:
        try:
            f = pj.fit(loss, memory=memory, time_limit=time_limit)
            program, spent = compiled(f, params, batch)
            note = f"{f.plan.overhead:.0%} of the work again, {f.plan.compiled} compiled"
            assert taken(program) <= memory, (taken(program), memory)
            ways[label] = program, spent, note
            print(f"  compiled {label}: {taken(program) / whole:.1%} of plain, {spent:.1f} s", flush=True)
        except pb.BudgetError as error:
            print(f"| {name} | {label} | smallest {error.minimum / whole:.1%} |||||", flush=True)
    value, gradient = plain(params, batch)
    print(f"| {name} | plain: {whole / 1e6:.4g} MB, loss {float(value):.5g} |||||")
    differs = {}
    for label, (program, _, _) in ways.items():
        differs[label] = difference(program(params, batch)[1], gradient)
    del gradient
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for label, (program, _, _) in ways.items():
            started = time.perf_counter()
            jax.block_until_ready(program(params, batch))
            best[label] = min(best[label], time.perf_counter() - started)
    for label, (program, spent, note) in ways.items():
        print(
            f"| {name} | {label} | {taken(program) / whole:.1%} | {best[label] * 1e3:.4g} ms "
            f"| {best[label] / best['plain']:.2f} | {differs[label]:.1e} | {spent:.1f} s | {note} |",
            flush=True,
        )


HEAD = "| model | way | memory | time | beside plain | difference | to compile | |" + "\n" + "|---" * 8 + "|"
CPU = {
    "GPT, 6 unrolled blocks": lambda: gpt(6, 128, 4, 8, 128, 1000, jnp.float32),
    "ViT, 6 unrolled blocks": lambda: vit(6, 128, 4, 8, 128, jnp.float32),
}
GPU = {
    "GPT, blocks of 1024, 16 x 1024, bf16": lambda layers: gpt(layers, 1024, 16, 16, 1024, 32768, jnp.bfloat16),
    "ViT, blocks of 1024, 64 x 196, bf16": lambda layers: vit(layers, 1024, 16, 64, 196, jnp.bfloat16),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for the search of a plan")
    parser.add_argument("--shares", default="0.7,0.5,0.3")
    parser.add_argument("--peers", default="", help="only those with one of these words in their names")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("only", nargs="?", default="")
    asked = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}\n\n{HEAD}", flush=True)
    shares = [float(share) for share in asked.shares.split(",") if share]
    for name, make in ({k: partial(v, asked.layers) for k, v in GPU.items()} if asked.gpu else CPU).items():
        if asked.only in name:
            words = asked.peers.split(",")
            peers = {k: v for k, v in PEERS.items() if any(word in k for word in words)}
            if not asked.gpu:  # A CPU has no other memory to offload to.
                peers = {k: v for k, v in peers.items() if "offload" not in k}
            measure(name, make, shares, peers, asked.rounds, asked.limit)


if __name__ == "__main__":
    main()
