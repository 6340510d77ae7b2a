#include "launch/deployment/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include "attention/full/full_attention.h"
#include "launch/cli/flag_set.h"
#include "launch/deployment/attention.h"
#include "launch/deployment/numeric_execution.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/image_layout.h"
#include "rank/cost/hardware.h"
#include "rank/vision/vision_encoder.h"
#include "scheduler/releases/sglang_release.h"
#include "scheduler/workload/benchmark_datasets.h"
#include "scheduler/workload/images.h"

namespace tpsim::launch {
namespace {

constexpr const char* kCacheVariable = "SGLANG_VLM_CACHE_SIZE_MB";

// --vlm-cache-size-mb, the environment variable, or what SGLang takes.
std::uint64_t cache_mib(const ServerArgs& args, bool profiled) {
  if (args.images.vlm_cache_size_mb) return *args.images.vlm_cache_size_mb;
  if (const char* const variable = std::getenv(kCacheVariable))
    return parse_count(kCacheVariable, variable, 0, 1U << 20);
  return profiled ? 0 : 100;
}

rank::VisionSharing sharing_of(const rank::ParallelLayout& layout, const rank::VisionConfig& vision) {
  return {.ranks = layout.attn_tp_size(), .data_parallel = vision.replicated};
}

void check_sharing(const ServerArgs& args, const rank::ParallelLayout& layout, const std::string& model,
                   const rank::VisionConfig& vision) {
  if (args.images.mm_enable_dp_encoder && !vision.data_parallel)
    throw_user_error(
        "--mm-enable-dp-encoder: SGLang's class of {} cuts its encoder by --tp alone; leave it out", model);
  if (layout.dp_size > 1 && !vision.replicated && !vision.attention_parallel)
    throw_user_error("--enable-dp-attention: SGLang's encoder of {} does not share fewer ranks than --tp{}",
                     model, vision.data_parallel ? "; add --mm-enable-dp-encoder" : "; leave it out");
  const std::uint32_t tp = sharing_of(layout, vision).tp_size();
  if (vision.rule != rank::ImageRule::kClosestRatio && vision.num_heads % tp != 0)
    throw_user_error("--tp {}: does not divide the {} heads of {}'s vision encoder{}", layout.tp_size,
                     vision.num_heads, model, vision.data_parallel ? "; add --mm-enable-dp-encoder" : "");
}

// The first flag that is about serving images; null for none.
const char* image_flag(const ImageArgs& images) {
  return !images.mm_attention_backend.empty() ? "--mm-attention-backend"
         : images.mm_enable_dp_encoder        ? "--mm-enable-dp-encoder"
         : images.vlm_cache_size_mb           ? "--vlm-cache-size-mb"
                                              : nullptr;
}

constexpr double kFreshPages =
    32.0 * 1024 * 1024;  // the most that glibc's malloc gives again (M_MMAP_THRESHOLD)

double seconds_of(const proto::HostProfile::PerByte& each, double bytes) {
  return bytes * (bytes > kFreshPages ? each.fresh() : each.reused());
}

// What an image's tensor takes: 32-bit pixels, of InternVL 16-bit.
double feature_bytes(const rank::VisionConfig& vision, const rank::ImageLayout& layout) {
  constexpr double kChannels = 3;
  if (vision.rule == rank::ImageRule::kSmartResize)
    return 4 * kChannels * vision.temporal_patch * vision.patch_size * vision.patch_size * layout.patches;
  const double side = vision.image_size;
  return (vision.rule == rank::ImageRule::kClosestRatio ? 2 : 4) * kChannels * side * side * layout.tiles;
}

// Whether numeric execution has what the workload's images need.
void check_computed(const ServerArgs& args, const rank::ModelConfig& model,
                    const scheduler::WorkloadOutline& workload) {
  if (!numeric_execution().computes_images(model.vision.architecture))
    throw_user_error(
        "--executor numeric: images of {} are priced and not computed, and {} has some; use --executor "
        "modeled",
        model.name, workload.name);
  if (model.vision.rule == rank::ImageRule::kSmartResize && !model.ropes.front().has_mrope())
    throw_user_error(
        "--model-path {}: config.json has no mrope_section, by which the model turns the rows and columns of "
        "{}'s images",
        model.name, workload.name);
  if (!args.speculation.algorithm.empty() && args.speculation.algorithm != "NGRAM")
    throw_user_error(
        "--speculative-algorithm {}: drafts for prompts with images are computed by NGRAM alone, and {} has "
        "images; use it, or --executor modeled",
        args.speculation.algorithm, workload.name);
}

}  // namespace

Images resolve_images(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ParallelLayout& layout, const rank::ModelConfig& model,
                      bool profiled_qwen3_vl) {
  Images out{.vision = model.vision, .notes = {}};
  rank::VisionConfig& vision = out.vision;
  const char* const flag = image_flag(args.images);
  if (!vision.present()) {
    if (flag != nullptr)
      throw_user_error("{}: {} has no vision encoder that is simulated; leave it out", flag, model.name);
    if (args.images.enable_multimodal)
      say(out.notes, "--enable-multimodal: {} takes text only, nothing happens, as in SGLang", model.name);
    return out;
  }
  vision.served = vision.on_by_default || args.images.enable_multimodal;
  if (!vision.served) {
    if (flag != nullptr)
      throw_user_error("{}: SGLang serves {} as a text model; add --enable-multimodal", flag, model.name);
    return out;
  }
  vision.replicated = args.images.mm_enable_dp_encoder;
  vision.encoded_by_request = !args.sglang_release.rules.encodes_images_of_all_requests;
  check_sharing(args, layout, model.name, vision);
  const attention::GpuGeneration generation = generation_of(hardware);
  const std::string& named = args.images.mm_attention_backend;
  vision.attention_backend =
      (named.empty() ? attention::default_full_attention(generation)
                     : attention::find_full_attention(named, generation, hardware.name()))
          .name;
  const std::uint64_t mib = cache_mib(args, profiled_qwen3_vl);
  vision.cache_bytes = mib << 20;
  if (args.sglang_release.rules.reserves_image_memory) {
    // Features then travel through GPU memory (mm_feature_transport cuda_ipc), in a pool of its own.
    const std::uint64_t features = profiled_qwen3_vl && mib == 0 ? 1024 : 0;
    vision.reserved_bytes = (mib + features) << 20;
  }
  if (args.images.mm_attention_backend.empty())
    say(out.notes, "--mm-attention-backend: {} is chosen, SGLang's default on this device",
        vision.attention_backend);
  if (profiled_qwen3_vl)
    say(out.notes,
        "Qwen3-VL on a large Hopper GPU: SGLang 0.5.23 also spaces prefills (--prefill-decode-interval 22), "
        "which tpsim does not; compare with a server started with --prefill-decode-interval 0");
  return out;
}

double image_memory_factor(const rank::VisionConfig& vision) {
  if (!vision.served) return 1;
  const auto complexity = [](double layers, double hidden) { return layers * hidden * hidden; };
  const double ratio = complexity(vision.num_layers, vision.hidden_size) / complexity(24, 1024);
  return 0.95 * std::clamp(1.0 - 0.1 * (ratio - 1.0), 0.8, 1.05);
}

rank::ImageEncoderConfig make_image_encoder(const proto::HardwareProfile& hardware,
                                            const rank::ParallelLayout& layout,
                                            const rank::ModelConfig& model) {
  const rank::VisionConfig& vision = model.vision;
  if (!vision.served) return {};
  const attention::FullAttentionDescription& kernel =
      attention::find_full_attention(vision.attention_backend, generation_of(hardware), hardware.name());
  return {std::make_shared<const rank::VisionEncoder>(vision, sharing_of(layout, vision), hardware, kernel),
          vision.cache_bytes, vision.encoded_by_request};
}

void write_images(const rank::VisionConfig& vision, Rows& rows) {
  if (!vision.served) return;
  rows["enable_multimodal"] = "true";
  rows["mm_attention_backend"] = std::string(vision.attention_backend);
  rows["mm_enable_dp_encoder"] = on_off(vision.replicated);
  rows["vlm_cache_size_mb"] = std::to_string(vision.cache_bytes >> 20);
}

ImageHost image_host(const rank::VisionConfig& vision, const proto::HostProfile::Images& constants,
                     std::span<const scheduler::ImageInput> images) {
  ImageHost host;
  if (images.empty()) return host;
  const bool pickled = vision.rule == rank::ImageRule::kClosestRatio;
  const auto count = static_cast<double>(images.size());
  double bytes = 0, pixels = 0;
  for (const scheduler::ImageInput& image : images) {
    const double one = feature_bytes(vision, rank::image_layout(vision, image.width, image.height));
    bytes += one;
    pixels += double(image.width) * image.height;
    if (pickled) continue;
    host.prepare_seconds += constants.share_seconds() + constants.share_byte_seconds() * one;
    host.receive_seconds += constants.receive_seconds() + seconds_of(constants.receive_byte_seconds(), one) +
                            constants.hash_byte_seconds() * one;
  }
  if (pickled) {
    host.prepare_seconds += constants.tile_seconds() + constants.decode_pixel_seconds() * pixels +
                            count * seconds_of(constants.pickle_byte_seconds(), bytes);
    host.receive_seconds += count * seconds_of(constants.unpickle_byte_seconds(), bytes);
  } else {
    host.prepare_seconds += constants.process_seconds() + seconds_of(constants.process_byte_seconds(), bytes);
  }
  return host;
}

namespace {

using NewReading = std::function<scheduler::PlacedImages::Place()>;

// How the images of `workload` are placed; empty: it has none. Throws UserError where they are not served.
NewReading image_placement(const ServerArgs& args, const rank::ModelConfig& model,
                           const proto::HostProfile& host, const scheduler::WorkloadOutline& workload) {
  if (!workload.images) {
    if (args.images.image_resolution && args.dataset_name != "image")
      throw_user_error("--image-resolution {}: {} has no images; leave it out", *args.images.image_resolution,
                       workload.name);
    return nullptr;
  }
  const rank::VisionConfig& vision = model.vision;
  if (!vision.present())
    throw_user_error(
        "--model-path {}: has no vision encoder that is simulated, and {} has images; use qwen2.5-vl-7b, "
        "qwen3-vl-8b, qwen3-vl-30b-a3b, gemma-3-27b, llama-4-scout or internvl3.5-8b",
        model.name, workload.name);
  if (!vision.served)
    throw_user_error(
        "--enable-multimodal: SGLang serves {} as a text model without it, and {} has images; add it",
        model.name, workload.name);
  if (args.numeric()) check_computed(args, model, workload);
  scheduler::ImageResolution size{0, 0, 0, 0};
  if (args.images.image_resolution) {
    size = scheduler::parse_image_resolution(*args.images.image_resolution);
    if (args.dataset_name != "image" && !workload.unsized_images)
      throw_user_error("--image-resolution {}: {} says how large its images are; leave it out",
                       *args.images.image_resolution, workload.name);
  }
  const auto rule = [&vision, numeric = args.numeric()](std::uint32_t width, std::uint32_t height) {
    const rank::ImageLayout layout = rank::image_layout(vision, width, height);
    scheduler::ImageTokens tokens{layout.before, layout.tokens, layout.after};
    if (numeric) {
      tokens.before_ids = vision.marker_ids_before;
      tokens.after_ids = vision.marker_ids_after;
    }
    return tokens;
  };
  return [&vision, rule, size, constants = host.images(),
          name = workload.name]() -> scheduler::PlacedImages::Place {
    return [&vision, constants, placer = scheduler::ImagePlacer(name, rule, size.min_width, size.min_height)](
               scheduler::WorkloadRequest& request) mutable {
      placer.place(request);
      const ImageHost host = image_host(vision, constants, request.images);
      request.image_prepare_seconds = host.prepare_seconds;
      request.image_receive_seconds = host.receive_seconds;
    };
  };
}

}  // namespace

void place_workload_images(const ServerArgs& args, const rank::ModelConfig& model,
                           const proto::HostProfile& host, scheduler::Workload& workload) {
  const NewReading new_reading =
      image_placement(args, model, host, scheduler::WorkloadView(workload).outline());
  if (!new_reading) return;
  const scheduler::PlacedImages::Place place = new_reading();
  for (scheduler::WorkloadRequest& request : workload.requests) place(request);
}

std::unique_ptr<const scheduler::StreamedWorkload> with_images_placed(
    const ServerArgs& args, const rank::ModelConfig& model, const proto::HostProfile& host,
    std::unique_ptr<const scheduler::StreamedWorkload> workload) {
  NewReading new_reading = image_placement(args, model, host, workload->outline());
  if (!new_reading) return workload;
  return std::make_unique<scheduler::PlacedImages>(std::move(workload), std::move(new_reading));
}

void finish_image_report(std::uint32_t dp_size, proto::RunReport& report) {
  if (!report.has_images() || report.ranks_size() == 0) return;
  proto::Images& images = *report.mutable_images();
  const int ranks_of_dp = std::max(1, report.ranks_size() / static_cast<int>(dp_size));
  std::uint64_t encoded = 0;
  std::uint64_t hits = 0;
  for (int rank = 0; rank < report.ranks_size(); rank += ranks_of_dp) {
    encoded += report.ranks(rank).encoded_images();
    hits += report.ranks(rank).embedding_cache_hits();
  }
  images.set_encoded(encoded);
  images.set_cache_hits(hits);
  const proto::RankReport& rank = report.ranks(0);
  const double all = rank.attention_seconds() + rank.gemm_seconds() + rank.collective_seconds() +
                     rank.other_seconds() + rank.launch_seconds() + rank.encoder_seconds() +
                     rank.wait_seconds();
  images.set_encoder_share(all > 0 ? rank.encoder_seconds() / all : 0);
}

}  // namespace tpsim::launch
