// Llama 1 to 3 and models of the same shape (SmolLM2, TinyLlama, Mistral without sliding window), as GGUF stores them:
// query and key rows permuted so that rotary pairs are neighbours.
#include "common/model/architecture.h"

namespace millrace::model::arch::llama {
namespace {

constexpr LayerOp kLayer[] = {
    {.kind = OpKind::kRmsNorm, .in = Activation::kResidual, .out = Activation::kNormed, .weight = "attn_norm.weight"},
    {.kind = OpKind::kLinear,
     .in = Activation::kNormed,
     .out = Activation::kQuery,
     .weight = "attn_q.weight",
     .bias = "attn_q.bias"},
    {.kind = OpKind::kLinear,
     .in = Activation::kNormed,
     .out = Activation::kKey,
     .weight = "attn_k.weight",
     .bias = "attn_k.bias"},
    {.kind = OpKind::kLinear,
     .in = Activation::kNormed,
     .out = Activation::kValue,
     .weight = "attn_v.weight",
     .bias = "attn_v.bias"},
    {.kind = OpKind::kRope, .out = Activation::kQuery},
    {.kind = OpKind::kRope, .out = Activation::kKey},
    {.kind = OpKind::kStoreKv},
    {.kind = OpKind::kAttention, .in = Activation::kQuery, .out = Activation::kAttended},
    {.kind = OpKind::kLinear,
     .in = Activation::kAttended,
     .out = Activation::kResidual,
     .weight = "attn_output.weight",
     .bias = "attn_output.bias",
     .accumulate = true},
    {.kind = OpKind::kRmsNorm, .in = Activation::kResidual, .out = Activation::kNormed, .weight = "ffn_norm.weight"},
    {.kind = OpKind::kLinear, .in = Activation::kNormed, .out = Activation::kGate, .weight = "ffn_gate.weight"},
    {.kind = OpKind::kLinear, .in = Activation::kNormed, .out = Activation::kUp, .weight = "ffn_up.weight"},
    {.kind = OpKind::kSwiGlu, .in = Activation::kGate, .second = Activation::kUp, .out = Activation::kHidden},
    {.kind = OpKind::kLinear,
     .in = Activation::kHidden,
     .out = Activation::kResidual,
     .weight = "ffn_down.weight",
     .accumulate = true},
};

constexpr std::string_view kRefused[] = {"expert_count", "attention.sliding_window"};

}  // namespace

const Architecture kDescriptor = {
    .name = "llama",
    .rope_pairing = RopePairing::kInterleaved,
    .layer = kLayer,
    .embedding = "token_embd.weight",
    .output_norm = "output_norm.weight",
    .output = "output.weight",
    .rope_factors = "rope_freqs.weight",
    .refused_keys = kRefused,
};

}  // namespace millrace::model::arch::llama
