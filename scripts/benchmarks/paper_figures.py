"""What the paper published, on an RTX 5090 and a Ryzen 9 9950X3D, for the page that puts it beside ours.

All at L=128 and S=500; agent-events/s, medians of 5 trials. Keys of the inner tables are the names that the paper's
backends have in our tables.
"""

BACKENDS = ("NumPy", "torch eager", "torch CUDA graphs", "torch.compile", "JAX", "naive CUDA", "paper's kernel")
NUMPY, TORCH, GRAPHS, COMPILE, JAX, NAIVE, KERNEL = BACKENDS
DEVICE = "NVIDIA GeForce RTX 5090"

_SWEPT = (NUMPY, TORCH, JAX, NAIVE, KERNEL)

# Agent-events/s at A=256, by M.
MARKETS = {
    64: dict(zip(_SWEPT, (2.04e7, 1.48e7, 1.15e7, 6.39e7, 3.61e9), strict=True)),
    256: dict(zip(_SWEPT, (2.10e7, 5.94e7, 4.47e7, 1.95e8, 1.35e10), strict=True)),
    1024: dict(zip(_SWEPT, (2.11e7, 2.24e8, 1.54e8, 7.56e8, 3.69e10), strict=True)),
    4096: dict(zip(_SWEPT, (1.60e7, 9.10e8, 6.13e8, 3.09e9, 4.73e10), strict=True)),
    16384: dict(zip(_SWEPT, (1.46e7, 3.54e9, 2.35e9, 1.14e10, 5.39e10), strict=True)),
}

# Agent-events/s at M=8192, by A.
AGENTS = {
    16: dict(zip(_SWEPT, (6.13e6, 1.13e8, 8.27e7, 8.01e8, 8.41e9), strict=True)),
    64: dict(zip(_SWEPT, (1.40e7, 4.50e8, 3.27e8, 2.58e9, 2.84e10), strict=True)),
    256: dict(zip(_SWEPT, (1.54e7, 1.87e9, 1.17e9, 6.13e9, 5.16e10), strict=True)),
    1024: dict(zip(_SWEPT, (1.55e7, 4.97e9, 4.46e9, 8.89e9, 5.47e10), strict=True)),
}

# M=8192, A=256.
FIXED = dict(zip(BACKENDS, (1.528e7, 1.871e9, 3.852e9, 4.984e9, 1.216e9, 6.189e9, 5.203e10), strict=True))

# Microseconds per step at M=4096, A=256, medians of 11 trials.
LATENCY = dict(zip(_SWEPT, (63468.5, 1150.7, 1704.1, 339.3, 22.1), strict=True))

# Peak megabytes of global memory at A=256, by M.
_MEASURED = (TORCH, NAIVE, KERNEL)
MEMORY = {
    64: dict(zip(_MEASURED, (1.34, 0.27, 0.14), strict=True)),
    256: dict(zip(_MEASURED, (5.32, 1.08, 0.54), strict=True)),
    1024: dict(zip(_MEASURED, (21.28, 4.32, 2.16), strict=True)),
    4096: dict(zip(_MEASURED, (85.09, 17.26, 8.66), strict=True)),
    16384: dict(zip(_MEASURED, (340.40, 69.06, 34.63), strict=True)),
}

# Its table of correctness (M=4096, A=256, S=500): the range over its backends.
LAST_PRICE = (63.94, 63.99)
VOLUME = (96381.0, 96438.0)


def throughput(sweep: str, markets: int, agents: int) -> dict[str, float]:
    """Return the published agent-events/s of a point by backend, empty where the paper has none."""
    if sweep == "fixed":
        return FIXED
    table, key = (MARKETS, markets) if sweep == "markets" else (AGENTS, agents)
    return table.get(key, {}) if sweep in ("markets", "agents") else {}
