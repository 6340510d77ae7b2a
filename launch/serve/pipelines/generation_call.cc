#include "launch/serve/pipelines/generation_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launch/serve/pipelines/media.h"
#include "launch/serve/pipelines/multipart.h"
#include "launch/serve/protocol/json_fields.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;
using Kind = GenerationCall::Kind;

constexpr std::int64_t kMostOutputs = 10;  // more are made ten, as there
constexpr std::uint32_t kImageSide = 1024, kVideoSeconds = 4, kVideoFps = 24;

// Fields that would change what is computed.
constexpr std::string_view kUnsimulated[] = {"attention_backend_override",
                                             "cache_dit_params",
                                             "cfg_gate_step",
                                             "diffusers_kwargs",
                                             "enable_cache_dit",
                                             "enable_teacache",
                                             "enable_upscaling",
                                             "enable_frame_interpolation",
                                             "enhance_prompt",
                                             "progressive_mode",
                                             "skip_softmax_params",
                                             "use_diffusion_decoder",
                                             "video_path",
                                             "video_url",
                                             "video_reference",
                                             "max_sequence_length"};
constexpr std::string_view kTexts[] = {"prompt", "negative_prompt", "model", "task_type", "size"};

bool asked(const json& value) {
  return !value.is_null() && value != json(false) && value != json("") && value != json::object();
}

// What is no UTF-8 in it is replaced.
json text_of(std::string_view bytes) {
  return json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace));
}

// Text that is a number or the like is one: forms have no other way, and OpenAI's clients send seconds so.
void read_numbers(json& fields) {
  for (auto& [name, value] : fields.items()) {
    if (!value.is_string() || std::ranges::count(kTexts, name) > 0) continue;
    json number = json::parse(value.get_ref<const std::string&>(), nullptr, false);
    if (number.is_number() || number.is_boolean() || number.is_null()) value = std::move(number);
  }
}

// What SDKs wrap stands beside the fields, which go before it.
void unwrap(json& fields) {
  for (const char* const wrapper : {"extra_body", "extra_json", "extra_args", "extra_params"}) {
    if (!fields.contains(wrapper)) continue;
    json inner = std::move(fields[wrapper]);
    fields.erase(wrapper);
    if (inner.is_string()) inner = json::parse(inner.get_ref<const std::string&>(), nullptr, false);
    if (!inner.is_object()) refuse_field(wrapper, "Input should be a JSON object");
    for (auto& [name, value] : inner.items()) {
      if (!fields.contains(name)) fields[name] = std::move(value);
    }
  }
}

class Reader {
 public:
  explicit Reader(const HttpRequest& request) {
    if (!is_form(request.content_type)) {
      object_ = parse_json_object(request.body);
      for (const char* const name : {"input_reference", "reference_url", "image", "url"}) {
        const auto at = object_.find(name);
        if (at == object_.end() || at->is_null()) continue;
        if (!at->is_string() && !at->is_array())
          refuse_field(name, "Input should be a string or a list of strings");
        images_.insert(images_.end(), at->is_array() ? at->size() : 1, {0, 0});
      }
    } else {
      object_ = json::object();
      for (const FormPart& part : read_form(request.content_type, request.body)) {
        const bool image = part.name.starts_with("image") || part.name.starts_with("url") ||
                           part.name == "input_reference" || part.name == "reference_url";
        if (image && !part.content.empty())
          images_.push_back(picture_size(part.content).value_or(std::array<std::uint32_t, 2>{0, 0}));
        else if (part.filename.empty())
          object_[std::string(part.name)] = text_of(part.content);
      }
    }
    unwrap(object_);
    read_numbers(object_);
  }

  GenerationCall read(Kind kind, const SamplingAsked& defaults) {
    GenerationCall call;
    call.kind = kind;
    call.sampling = defaults;
    refuse_unsimulated();
    const JsonFields fields(object_);
    const std::optional<std::string> prompt = fields.text("prompt");
    if (!prompt) throw Refusal(422, "Unprocessable Entity", "prompt: Field required");
    call.prompt = *prompt;
    call.model = fields.text("model").value_or("");
    call.task_type = fields.text("task_type").value_or("");
    if (call.kind == Kind::kEdit && images_.empty())
      throw Refusal(422, "Unprocessable Entity", "Field 'image' or 'url' is required");
    read_size(fields, call);
    read_length(fields, call);
    read_format(fields, call);
    SamplingAsked& s = call.sampling;
    whole(fields, "num_inference_steps", kMostSteps, s.steps);
    // "n" of everyone, and the name that videos have besides.
    for (const char* const name : {"n", "num_outputs_per_prompt"}) {
      if (const auto n = fields.integer(name, -std::int64_t{kMostSteps}, kMostSteps))
        s.outputs = static_cast<std::uint32_t>(std::clamp<std::int64_t>(*n, 1, kMostOutputs));
    }
    if (const auto scale = fields.real("guidance_scale")) s.guidance = *scale;
    if (const auto scale = fields.real("true_cfg_scale")) s.true_cfg = *scale;
    if (fields.text("negative_prompt")) s.negative_prompt = true;
    if (!images_.empty()) s.images = images_;
    return call;
  }

 private:
  void refuse_unsimulated() const {
    for (const std::string_view name : kUnsimulated) {
      const auto at = object_.find(name);
      if (at != object_.end() && asked(*at))
        refuse_field(name, "is not simulated for single requests, leave it out");
    }
  }

  static bool whole(const JsonFields& fields, std::string_view name, std::int64_t most,
                    std::optional<std::uint32_t>& target) {
    const std::optional<std::int64_t> value = fields.integer(name, 1, most);
    if (value) target = static_cast<std::uint32_t>(*value);
    return value.has_value();
  }

  static void read_size(const JsonFields& fields, GenerationCall& call) {
    SamplingAsked& s = call.sampling;
    const std::string size = fields.text("size").value_or("");
    if (!size.empty()) {
      try {
        if (size.find('x') == std::string::npos) throw UserError("");
        const auto [width, height] = read_resolution("size", size);
        s.width = width, s.height = height;
      } catch (const UserError&) {
        throw Refusal(400, "Bad Request", "size must be formatted as positive WIDTHxHEIGHT");
      }
    } else if (call.kind == Kind::kImage && !s.width && !s.height && !fields.find("width") &&
               !fields.find("height") && std::ranges::none_of(s.shortcuts, &Shortcut::given)) {
      s.width = s.height = kImageSide;
    }
    const bool width = whole(fields, "width", kMostPixels, s.width);
    if (whole(fields, "height", kMostPixels, s.height) || width || !size.empty()) {
      for (Shortcut& shortcut : s.shortcuts) shortcut.given = false;
    }
  }

  static void read_length(const JsonFields& fields, GenerationCall& call) {
    SamplingAsked& s = call.sampling;
    if (call.kind != Kind::kVideo) {
      s.frames.reset();
      return;
    }
    std::optional<std::uint32_t> fps, seconds, frames;
    whole(fields, "fps", kMostFps, fps);
    whole(fields, "seconds", kMostFrames, seconds);
    whole(fields, "num_frames", kMostFrames, frames);
    call.fps = fps.value_or(s.fps.value_or(kVideoFps));
    if (frames)
      s.frames = frames;
    else if (fps || seconds || !s.frames)
      s.frames = call.fps * seconds.value_or(kVideoSeconds);
    if (*s.frames > kMostFrames)
      refuse_field("seconds", fmt::format("{} frames are more than {}", *s.frames, kMostFrames));
  }

  static void read_format(const JsonFields& fields, GenerationCall& call) {
    const std::string format =
        fields.text("response_format").value_or(call.kind == Kind::kImage ? "url" : "b64_json");
    if (format != "url" && format != "b64_json")
      throw Refusal(400, "Bad Request", fmt::format("response_format={} is not supported", format));
    call.as_url = format == "url";
  }

  json object_;
  std::vector<std::array<std::uint32_t, 2>> images_;
};

}  // namespace

GenerationCall read_generation(Kind kind, const HttpRequest& request, const SamplingAsked& defaults) {
  return Reader(request).read(kind, defaults);
}

}  // namespace tpsim::launch
