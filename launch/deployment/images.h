// How a deployment serves images: whether it does, with which attention, shared in which way, and what that
// takes of its memory; and the images of the workload it is given.
//
// Source: SGLang 0.5.23 configs/model_config.py (mm_disabled_models), arg_groups/memory_hook.py
// (adjust_mem_fraction_for_vlm), arg_groups/model_overrides/qwen3_vl.py,
// mem_cache/kv_cache_configurator.py (mm_runtime_reservation_gb); server_args.py of 0.5.12.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "proto/host.pb.h"
#include "proto/report.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/config/vision_config.h"
#include "rank/parallel/image_encoding.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// What the server makes of the model's encoder, served or not.
struct Images {
  rank::VisionConfig vision;
  Notes notes;
};
// `profiled_qwen3_vl`: of the choice of attention. Throws UserError naming the flag that cannot be carried
// out.
Images resolve_images(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ParallelLayout& layout, const rank::ModelConfig& model,
                      bool profiled_qwen3_vl);

// What SGLang leaves of its own --mem-fraction-static for a model that encodes images; 1 for others.
double image_memory_factor(const rank::VisionConfig& vision);

// `model`: with the encoder of resolve_images(). Without an encoder where images are not served.
rank::ImageEncoderConfig make_image_encoder(const proto::HardwareProfile& hardware,
                                            const rank::ParallelLayout& layout,
                                            const rank::ModelConfig& model);

// Of a deployment that serves images; nothing of others.
void write_images(const rank::VisionConfig& vision, Rows& rows);

// What the host does with the images of a request before the GPU encodes them: SGLang's tokenizer process
// decodes, resizes and cuts them into patches, request by request, and hands the tensors over in shared
// memory; the scheduler copies and hashes them in its loop, which waits for that.
//
// Source: SGLang 0.5.12 multimodal/processors/base_processor.py (load_mm_data, process_mm_data),
// managers/mm_utils.py (ShmPointerMMData, hash_feature); what that takes on a host is among its constants
// (rank/catalogue/hosts). Tensors above 32 MiB get fresh pages of memory each time and cost two to three
// times as much a byte. InternVL's stay on the GPU and are pickled, each image with the tensor of all. Llama
// 4 was not measured: as Gemma 3.
struct ImageHost {
  double prepare_seconds = 0;  // of the tokenizer process
  double receive_seconds = 0;  // of the scheduler
};

// Of one request. REQUIRES: sides of images are from 1 to rank::kMaxImageSide. Throws UserError as
// rank::image_layout() does.
ImageHost image_host(const rank::VisionConfig& vision, const proto::HostProfile::Images& constants,
                     std::span<const scheduler::ImageInput> images);

// Puts the tokens of the workload's images into its prompts, and notes what they take of `host`. Throws
// UserError where the model has no encoder, or it is off.
void place_workload_images(const ServerArgs& args, const rank::ModelConfig& model,
                           const proto::HostProfile& host, scheduler::Workload& workload);
// The same as the workload is read, of one that has images; another one is returned as it is. `model` must
// outlive the result.
std::unique_ptr<const scheduler::StreamedWorkload> with_images_placed(
    const ServerArgs& args, const rank::ModelConfig& model, const proto::HostProfile& host,
    std::unique_ptr<const scheduler::StreamedWorkload> workload);

// What the ranks did, once their reports are there.
void finish_image_report(std::uint32_t dp_size, proto::RunReport& report);

}  // namespace tpsim::launch
