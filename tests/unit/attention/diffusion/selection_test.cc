// Which backend a layer gets: SGLang's own answers on random requests, and the sentences.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention::diffusion_selection_test {
namespace {

std::optional<DiffusionAttentionChoice> choose(const DiffusionAttentionRequest& request,
                                               std::string* refusal = nullptr) {
  try {
    return choose_diffusion_attention(request);
  } catch (const UserError& error) {
    if (refusal != nullptr) *refusal = error.what();
    return std::nullopt;
  }
}

DiffusionAttentionRequest on(GpuGeneration generation, const std::string& requested = "") {
  DiffusionAttentionRequest request;
  request.generation = generation;
  request.head_dim = 128;
  request.requested = requested;
  return request;
}

// tests/references/record_diffusion_choices.py.
TEST(DiffusionChoice, IsSglangsOn650RandomRequests) {
  std::ifstream file(TPSIM_SOURCE "/tests/references/diffusion_choices.txt");
  std::string line;
  int rows = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string generation, head_dim, dtype, role, ring, requested, of, without, answer;
    words >> generation >> head_dim >> dtype >> role >> ring >> requested >> of >> without >> answer;
    DiffusionAttentionRequest request;
    request.generation = parse_gpu_generation(generation).value();
    request.head_dim = static_cast<std::uint32_t>(std::stoul(head_dim));
    request.dtype = dtype;
    request.cross = role == "cross";
    request.ring = ring == "ring";
    if (requested != "-") request.requested = requested;
    request.explicit_component = of == "component";
    request.auxiliary = of == "auxiliary";
    request.installed = diffusion_packages();
    if (without != "-") {
      for (const std::string& package : split_list(without)) {
        EXPECT_EQ(request.installed.erase(package), 1U) << package;
      }
    }
    std::string refusal;
    const auto choice = choose(request, &refusal);
    EXPECT_EQ(choice ? choice->backend->name : "refused", answer) << line << "\n"
                                                                  << (choice ? choice->reason : refusal);
    if (choice) {
      // Whatever was not asked for has its reason.
      const bool other = requested != "-" && choice->backend->name != requested;
      EXPECT_EQ(choice->replaced, other) << line;
      if (other || requested == "-") {
        EXPECT_NE(choice->reason, "") << line;
      }
    }
    ++rows;
  }
  EXPECT_EQ(rows, 650);
}

TEST(DiffusionChoice, AutomaticByPlatform) {
  const auto automatic = [](GpuGeneration generation) { return choose(on(generation))->backend->name; };
  EXPECT_EQ(automatic(GpuGeneration::kTuring), "torch_sdpa");
  EXPECT_EQ(automatic(GpuGeneration::kAmpere), "fa");
  EXPECT_EQ(automatic(GpuGeneration::kHopper), "fa");
  EXPECT_EQ(automatic(GpuGeneration::kBlackwell), "dynamic_cudnn_sdpa");
  EXPECT_EQ(automatic(GpuGeneration::kBlackwellSm120), "torch_sdpa");
  EXPECT_EQ(automatic(GpuGeneration::kRocm), "aiter");
  EXPECT_EQ(automatic(GpuGeneration::kXpu), "fa");
  EXPECT_EQ(automatic(GpuGeneration::kNpu), "torch_sdpa");
  EXPECT_EQ(automatic(GpuGeneration::kCpu), "torch_sdpa");
}

TEST(DiffusionChoice, SparseOnesLeaveCrossAttentionAndImagesToDenseOnes) {
  for (const DiffusionBackend* const backend : diffusion_backends()) {
    if (!backend->sparse) continue;
    DiffusionAttentionRequest request = on(GpuGeneration::kHopper, std::string(backend->name));
    EXPECT_EQ(choose(request)->backend, backend);
    request.cross = true;
    EXPECT_EQ(choose(request)->backend->name, "fa") << backend->name;
    EXPECT_NE(choose(request)->reason.find("no cross attention"), std::string::npos);
    request.cross = false;
    request.video = false;
    EXPECT_EQ(choose(request)->backend->name, "fa") << backend->name;
    EXPECT_TRUE(choose(request)->replaced);
  }
}

TEST(DiffusionChoice, SaysWhatIsMissing) {
  std::string refusal;
  DiffusionAttentionRequest request = on(GpuGeneration::kHopper, "video_sparse_attn");
  request.installed = {"fa"};
  EXPECT_FALSE(choose(request, &refusal));
  EXPECT_NE(refusal.find("needs vsa, which --installed leaves out"), std::string::npos) << refusal;
  request.requested = "sage_attn";
  EXPECT_EQ(choose(request)->backend->name, "fa");
  request.installed = {"sage"};
  request.requested = "fa";
  EXPECT_EQ(choose(request)->backend->name, "torch_sdpa");
  EXPECT_FALSE(choose(on(GpuGeneration::kRocm, "sage_attn"), &refusal));
  EXPECT_NE(refusal.find("does not run on ROCm"), std::string::npos) << refusal;
}

TEST(DiffusionNames, AliasesUnknownAndUnsimulated) {
  EXPECT_EQ(find_diffusion_backend("--attention-backend", "fa3").name, "fa");
  EXPECT_EQ(find_diffusion_backend("--attention-backend", "FA4").name, "fa");
  EXPECT_EQ(find_diffusion_backend("--attention-backend", "cudnn_sdpa").name, "torch_cudnn_sdpa");
  const auto sentence = [](const std::string& name) -> std::string {
    try {
      find_diffusion_backend("--attention-backend", name);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(sentence("sage_atn").find("did you mean sage_attn?"), std::string::npos) << sentence("sage_atn");
  for (const std::string_view name : unsimulated_diffusion_backends())
    EXPECT_NE(sentence(std::string(name)).find("not simulated"), std::string::npos) << name;
  // AttentionBackendEnum of 0.5.23 has 26 members.
  EXPECT_EQ(diffusion_backends().size() + unsimulated_diffusion_backends().size(), 26U);
  std::set<std::string_view> names;
  for (const DiffusionBackend* const backend : diffusion_backends()) names.insert(backend->name);
  EXPECT_EQ(names.size(), diffusion_backends().size());
}

// ../shared/reference/004…, "Platform support matrix": CUDA, ROCm, XPU, MUSA, MPS, NPU.
struct Cells {
  const char* backend;
  const char* cells;
};
constexpr Cells kMatrix[] = {
    {"fa", "yyyy-y"},        {"torch_sdpa", "yyyyyy"},    {"sliding_tile_attn", "y-----"},
    {"sage_attn", "y--y--"}, {"sage_attn_3", "y-----"},   {"video_sparse_attn", "y-----"},
    {"sla_attn", "y-----"},  {"sage_sla_attn", "y-----"}, {"vmoba_attn", "y-----"},
    {"aiter", "-y----"},     {"aiter_sage", "-y----"},    {"sparse_video_gen_2_attn", "y-----"},
};

TEST(DiffusionMatrix, IsTheDocumentations) {
  std::set<std::string_view> documented;
  for (const Cells& row : kMatrix) {
    const DiffusionBackend& backend = find_diffusion_backend("--attention-backend", row.backend);
    documented.insert(backend.name);
    for (const DiffusionPlatform platform : kDiffusionPlatforms)
      EXPECT_EQ(backend.platforms.contains(platform), row.cells[static_cast<std::size_t>(platform)] == 'y')
          << backend.name << " on " << to_string(platform);
  }
  for (const DiffusionBackend* const backend : diffusion_backends())
    EXPECT_EQ(documented.contains(backend->name), backend->documented) << backend->name;
}

// A ticked cell is what one gets there, on some device of the platform; an empty one never is. (fa on ROCm is
// ticked, and since it goes through FlashAttention 3 one gets torch_sdpa, as in 0.5.23.)
TEST(DiffusionMatrix, HoldsInBothDirections) {
  for (const DiffusionBackend* const backend : diffusion_backends()) {
    for (const DiffusionPlatform platform : kDiffusionPlatforms) {
      bool served = false, seen = false;
      for (int at = 0; at <= static_cast<int>(GpuGeneration::kCpu); ++at) {
        const auto generation = static_cast<GpuGeneration>(at);
        if (diffusion_platform(generation) != platform) continue;
        seen = true;
        const auto choice = choose(on(generation, std::string(backend->name)));
        served = served || (choice && choice->backend == backend);
      }
      if (!seen) continue;  // no GPU of the catalogue is of MUSA or MPS
      const bool ticked = backend->platforms.contains(platform) &&
                          !(backend->name == "fa" && platform == DiffusionPlatform::kRocm);
      EXPECT_EQ(served, ticked) << backend->name << " on " << to_string(platform);
    }
  }
}

}  // namespace
}  // namespace tpsim::attention::diffusion_selection_test
