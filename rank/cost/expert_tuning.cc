#include "rank/cost/expert_tuning.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace tpsim::rank {
namespace {

struct Tuned {
  std::string_view gpu;
  std::uint32_t experts;
  std::initializer_list<std::uint32_t> widths;
};
const Tuned kTuned[] = {
    {"a100-sxm", 1, {1792, 3584, 7168, 14336}},
    {"a100-sxm", 8, {1792, 2048, 3584, 4096, 7168}},
    {"a100-sxm", 16, {1344, 1792, 2688, 3584, 7168, 14336}},
    {"a100-sxm", 64, {640, 1280}},
    {"a100-sxm", 257, {64}},
    {"b200", 16, {1024, 1856, 2048}},
    {"b200", 32, {224, 448, 896, 928, 1792, 1856}},
    {"b200", 64, {192, 384, 464, 768, 928, 1536, 1856, 2688}},
    {"b200", 128, {232, 352, 464, 704, 928, 1344, 1856, 2688}},
    {"b200", 256, {256, 512, 672, 1344, 2688}},
    {"b200", 512, {128, 256, 336, 672, 1344, 2688}},
    {"h100-sxm", 1, {3072}},
    {"h100-sxm", 8, {1792, 2048, 3584, 4096, 7168}},
    {"h100-sxm", 16, {1024, 1344, 1856, 2048, 2688}},
    {"h100-sxm", 20, {2048}},
    {"h100-sxm", 24, {1024}},
    {"h100-sxm", 32, {224, 448, 896, 928, 1792, 1856}},
    {"h100-sxm", 64, {192, 320, 384, 464, 640, 768, 928, 1280, 1536, 1856, 2688}},
    {"h100-sxm", 65, {1536}},
    {"h100-sxm", 128, {192, 232, 352, 384, 464, 512, 704, 768, 928, 1344, 1856, 2688}},
    {"h100-sxm", 144, {512}},
    {"h100-sxm", 256, {672, 1344, 2688}},
    {"h100-sxm", 512, {64, 128, 336, 672, 1344, 2688}},
    {"h20", 128, {96, 192, 384, 768}},
    {"h20", 192, {192}},
    {"h20", 256, {128, 512}},
    {"h200-sxm", 8, {1792, 2048, 3584, 4096, 7168, 14336}},
    {"h200-sxm", 16, {1024}},
    {"h200-sxm", 20, {1536}},
    {"h200-sxm", 64, {320, 640, 1280, 2560}},
    {"h200-sxm", 128, {192, 384, 768}},
    {"h200-sxm", 161, {192}},
    {"h200-sxm", 512, {64, 128, 256}},
    {"l40s", 8, {3584}},
    {"l40s", 128, {928, 1856}},
};

}  // namespace

bool has_tuned_experts(std::string_view gpu, std::uint32_t experts, std::uint32_t width) {
  return std::any_of(std::begin(kTuned), std::end(kTuned), [&](const Tuned& row) {
    return row.gpu == gpu && row.experts == experts &&
           std::find(row.widths.begin(), row.widths.end(), width) != row.widths.end();
  });
}

}  // namespace tpsim::rank
