// A published figure of a diffusion pipeline as what tpsim is asked for: the words of its cells as flags of
// `tpsim generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/measurements/published_generations.h"

namespace tpsim::launch {

enum class TimedPart : std::uint8_t {
  kEndToEnd,
  kDenoising,
  kStep,
  kTextEncoding,
  kImageEncoding,
  kDecoding,
  kAttention
};
// "end to end", "denoising", "step" …
std::string_view to_string(TimedPart part);
// What `timed` says. Throws UserError where tpsim has no such figure, as all below do: a sentence without the
// file's name, the reason why the row cannot be asked.
TimedPart timed_part(const PublishedGeneration& row);

// Of the server that is simulated; others are not.
bool is_sglang(const PublishedGeneration& row);
// Of the catalogue.
std::string hardware_of(const PublishedGeneration& row);
// --attention-backend, empty for SGLang's own choice, and --attention-backend-config.
struct AskedBackend {
  std::string name, settings;
};
AskedBackend backend_of(const PublishedGeneration& row, const std::string& hardware);
// Flags of `tpsim generate`, in its order. `part` needs fewer of them where it has no frames or steps.
std::vector<std::string> generation_flags(const PublishedGeneration& row, TimedPart part);
// The row that its speed-up is over; nothing where the words of `baseline` name no setting of the same
// engine, or the row itself.
std::optional<PublishedGeneration> baseline_of(const PublishedGeneration& row);

// A call of an attention kernel.
struct AskedAttention {
  double batch = 0, tokens = 0;
  std::uint32_t heads = 0, head_dim = 0;
};
AskedAttention attention_call(const PublishedGeneration& row);

}  // namespace tpsim::launch
