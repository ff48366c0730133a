// How a gate is activated and multiplied with up (Shazeer, arXiv 2002.05202). Kernels need nothing else of a model's config.
#pragma once

enum activation {
    ACTIVATION_SILU,               // gate / (1 + e^-gate) * up
    ACTIVATION_GELU,               // GELU by tanh: 0.5 gate (1 + tanh(sqrt(2 / π) (gate + 0.044715 gate³))) * up
    ACTIVATION_CLAMPED,            // g / (1 + e^-1.702g) * (u + 1), where g = min(gate, 7) and u = up, held within ±7
    ACTIVATION_GELU_ERF,           // GELU itself: 0.5 gate (1 + erf(gate / sqrt(2))) * up
    ACTIVATION_RELU2,              // max(gate, 0)² * up
    ACTIVATIONS,                   // have kernels; not so what has numbers of its own in each layer:
    ACTIVATION_XIELU = ACTIVATIONS // p g² + b g of g > 0, else n (e^g - 1 - g) + b g (Huang, Schlag, arXiv 2411.13010)
};

#define CLAMPED_LIMIT 7.0f
#define CLAMPED_SLOPE 1.702f
