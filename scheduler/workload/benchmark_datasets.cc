#include "scheduler/workload/benchmark_datasets.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/sampler.h"

namespace tpsim::scheduler {
namespace {

constexpr std::uint64_t kMaxPrompts = 100'000'000;

void check(const char* flag, std::uint64_t value, std::uint64_t max) {
  if (value == 0 || value > max)
    throw_user_error("{} {}: must be a whole number from 1 to {}", flag, value, max);
}

void check(const SharedPrefixOptions& options) {
  check("--gsp-num-groups", options.num_groups, kMaxPrompts);
  check("--gsp-prompts-per-group", options.prompts_per_group, kMaxPrompts / options.num_groups);
  check("--gsp-num-turns", options.num_turns, kMaxPrompts / options.num_groups / options.prompts_per_group);
  check("--gsp-output-len", options.output_len, kMaxRequestTokens);
  // The last turn of a conversation has the longest prompt.
  const std::uint64_t most = kMaxRequestTokens / options.num_turns;
  check("--gsp-question-len", options.question_len, most);
  check("--gsp-system-prompt-len", options.system_prompt_len, kMaxRequestTokens);
  if (options.system_prompt_len + (options.question_len + options.output_len) * options.num_turns >
      kMaxRequestTokens) {
    throw_user_error("--gsp-system-prompt-len {}: prompts become longer than {} tokens, make it smaller",
                     options.system_prompt_len, kMaxRequestTokens);
  }
  if (!(options.range_ratio >= 0 && options.range_ratio <= 1))
    throw_user_error("--gsp-range-ratio {}: must be a number from 0 to 1", options.range_ratio);
  if (options.zipf_alpha && !(*options.zipf_alpha > 0 && *options.zipf_alpha <= 1000))
    throw_user_error("--gsp-zipf-alpha {}: must be a number more than 0 and at most 1000",
                     *options.zipf_alpha);
}

// The group of each prompt, before the shuffle.
std::vector<std::uint32_t> assign_groups(const SharedPrefixOptions& options) {
  std::vector<std::uint32_t> groups(options.num_groups * options.prompts_per_group);
  if (!options.zipf_alpha) {
    for (std::size_t i = 0; i < groups.size(); ++i)
      groups[i] = static_cast<std::uint32_t>(i / options.prompts_per_group);
    return groups;
  }
  std::vector<double> cumulative(options.num_groups);
  double sum = 0;
  for (std::size_t rank = 1; rank <= cumulative.size(); ++rank) {
    const double exponent = *options.zipf_alpha * portable_log(static_cast<double>(rank));
    sum += exponent > 600 ? 0 : portable_exp(-exponent);
    cumulative[rank - 1] = sum;
  }
  NumpyGenerator random(options.seed);
  for (std::uint32_t& group : groups) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, random.uniform() * sum);
    group = static_cast<std::uint32_t>(found - cumulative.begin());
  }
  return groups;
}

std::uint64_t total(const std::vector<std::uint32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
}

// What was drawn, for all readings.
struct SharedPrefixes {
  SharedPrefixOptions options;
  std::vector<std::uint32_t> question_lens, output_lens;
  std::vector<std::uint32_t> groups;  // of each conversation
  std::vector<std::uint32_t> order;   // of the conversations
  std::vector<kvcache::TokenRun> system_prompts;
  kvcache::TokenId first_id = 0;  // of the questions and answers
};

SharedPrefixes draw(const SharedPrefixOptions& options) {
  check(options);
  SharedPrefixes drawn;
  drawn.options = options;
  const std::uint64_t conversations = options.num_groups * options.prompts_per_group;
  NumpyRandom numpy(options.seed);
  const auto lengths = [&](std::uint64_t length, std::uint64_t count) {
    return numpy.lengths(length, options.range_ratio, count);
  };
  const std::vector<std::uint32_t> system_lens = lengths(options.system_prompt_len, options.num_groups);
  drawn.question_lens = lengths(options.question_len, conversations * options.num_turns);
  drawn.output_lens = lengths(options.output_len, conversations);
  drawn.groups = assign_groups(options);
  drawn.order.resize(conversations);
  std::iota(drawn.order.begin(), drawn.order.end(), 0U);
  if (!options.ordered) {
    PythonRandom python(options.seed);
    python.skip(total(system_lens) + total(drawn.question_lens));  // it has drawn every token before
    python.shuffle(drawn.order);
  }
  const std::uint64_t answers = options.num_turns > 1 ? total(drawn.output_lens) * options.num_turns : 0;
  if (total(system_lens) + total(drawn.question_lens) + answers > kGeneratedTokenBase)
    throw_user_error("--gsp-num-groups: the prompts have more than 2^48 tokens together, make it smaller");
  for (const std::uint32_t length : system_lens) {
    drawn.system_prompts.push_back({drawn.first_id, length});
    drawn.first_id += length;
  }
  return drawn;
}

// One reading.
class SharedPrefixReader {
 public:
  explicit SharedPrefixReader(std::shared_ptr<const SharedPrefixes> drawn)
      : drawn_(std::move(drawn)), next_id_(drawn_->first_id) {}

  std::shared_ptr<const WorkloadRequest> operator()() {
    const std::uint64_t num_turns = drawn_->options.num_turns;
    if (turn_ == num_turns) {
      ++conversation_;
      turn_ = 0;
    }
    if (conversation_ == drawn_->order.size()) return nullptr;
    const std::uint32_t slot = drawn_->order[conversation_];
    if (turn_ == 0) {
      history_.clear();
      history_.append(drawn_->system_prompts[drawn_->groups[slot]]);
    }
    history_.append(take_ids(drawn_->question_lens[slot * num_turns + turn_]));
    auto request = std::make_shared<WorkloadRequest>();
    request->prompt = history_;
    request->max_new_tokens = drawn_->output_lens[slot];
    if (num_turns > 1) {
      request->session = static_cast<std::uint32_t>(conversation_ + 1);
      if (turn_ > 0) request->think_time = 0;
      const kvcache::TokenRun answer = take_ids(drawn_->output_lens[slot]);
      request->output.append(answer);
      history_.append(answer);
    }
    ++turn_;
    return request;
  }

 private:
  kvcache::TokenRun take_ids(std::uint32_t length) {
    const kvcache::TokenRun run{next_id_, length};
    next_id_ += length;
    return run;
  }

  std::shared_ptr<const SharedPrefixes> drawn_;
  std::size_t conversation_ = 0;  // position in order
  std::uint64_t turn_ = 0;
  kvcache::TokenSequence history_;
  kvcache::TokenId next_id_;
};

void check_range(const char* flag, std::uint64_t value, std::uint64_t max) {
  if (value == 0 || value > max) {
    throw_user_error("{} is {}; a whole number from 1 to {} is needed", flag, value, max);
  }
}

struct Size {
  std::uint32_t width = 0, height = 0;
};

[[noreturn]] void refuse(const std::string& text) {
  throw_user_error(
      "--image-resolution {}: must be 4k, 1080p, 720p, 360p, HEIGHTxWIDTH with sides of 1 to {} pixels, or "
      "random:HEIGHTxWIDTH-HEIGHTxWIDTH",
      text, kMostPixels);
}

bool read_side(std::string_view text, std::uint32_t& side) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  return error == std::errc() && end == text.data() + text.size() && side >= 1 && side <= kMostPixels;
}

Size read_size(std::string_view text, const std::string& whole) {
  constexpr std::pair<std::string_view, Size> kNamed[] = {
      {"4k", {3840, 2160}}, {"1080p", {1920, 1080}}, {"720p", {1280, 720}}, {"360p", {640, 360}}};
  for (const auto& [name, size] : kNamed) {
    if (text == name) return size;
  }
  const std::size_t x = text.find('x');
  Size size;
  if (x == std::string_view::npos || !read_side(text.substr(0, x), size.height) ||
      !read_side(text.substr(x + 1), size.width))
    refuse(whole);
  return size;
}

}  // namespace

SharedPrefixWorkload::SharedPrefixWorkload(const SharedPrefixOptions& options)
    : StreamedWorkload("generated-shared-prefix", "generated-shared-prefix", {},
                       [drawn = std::make_shared<const SharedPrefixes>(draw(options))] {
                         return SharedPrefixReader(drawn);
                       }) {}

void check(const RandomOptions& options) {
  check_range("--num-prompts", options.num_prompts, kMaxPrompts);
  check_range("--random-input-len", options.random_input_len, kMaxRequestTokens);
  check_range("--random-output-len", options.random_output_len, kMaxRequestTokens);
  if (!(options.random_range_ratio >= 0 && options.random_range_ratio <= 1)) {
    throw_user_error("--random-range-ratio is {}; a number from 0 to 1 is needed",
                     options.random_range_ratio);
  }
  if (options.random_input_len > kGeneratedTokenBase / options.num_prompts) {
    throw_user_error("--num-prompts times --random-input-len is more than 2^48 tokens; make one smaller");
  }
}

RandomWorkload::RandomWorkload(const RandomOptions& options, NumpyRandom random, NumpyRandom* after) {
  check(options);
  const auto draw = [options](NumpyRandom& from, std::uint64_t length) {
    return from.length(length, options.random_range_ratio);
  };
  // The benchmark draws all input lengths before all output lengths: the generator in front of both.
  const NumpyRandom inputs = random;
  std::uint32_t shortest = std::numeric_limits<std::uint32_t>::max();
  for (std::uint64_t i = 0; i < options.num_prompts; ++i)
    shortest = std::min(shortest, draw(random, options.random_input_len));
  const NumpyRandom outputs = random;
  if (after != nullptr) {
    for (std::uint64_t i = 0; i < options.num_prompts; ++i) draw(random, options.random_output_len);
    *after = random;
  }
  outline_.name = outline_.format = "random";
  outline_.requests = options.num_prompts;
  outline_.shortest_prompt = shortest;
  outline_.without_accept_lens = 0;
  read_ = [=] {
    return [=, read = std::uint64_t{0}, next_id = kvcache::TokenId{0}, inputs = inputs,
            outputs = outputs]() mutable -> std::shared_ptr<const WorkloadRequest> {
      if (read == options.num_prompts) return nullptr;
      ++read;
      auto request = std::make_shared<WorkloadRequest>();
      const std::uint32_t length = draw(inputs, options.random_input_len);
      request->prompt.append({next_id, length});
      request->max_new_tokens = draw(outputs, options.random_output_len);
      next_id += length;
      return request;
    };
  };
}

ImageResolution parse_image_resolution(const std::string& text) {
  constexpr std::string_view kRandom = "random:";
  const std::string_view view = text;
  if (!view.starts_with(kRandom)) {
    const Size size = read_size(view, text);
    return {size.width, size.height, size.width, size.height};
  }
  const std::string_view bounds = view.substr(kRandom.size());
  const std::size_t dash = bounds.find('-');
  if (dash == std::string_view::npos) refuse(text);
  const Size least = read_size(bounds.substr(0, dash), text);
  const Size most = read_size(bounds.substr(dash + 1), text);
  if (least.width > most.width || least.height > most.height)
    throw_user_error("--image-resolution {}: the first size must not exceed the second", text);
  return {least.width, least.height, most.width, most.height};
}

// The benchmark draws in this order: counts, input lengths, output lengths, then sizes.
ImageWorkload::ImageWorkload(const ImageOptions& options) {
  if (options.image_count == 0 || options.image_count > kMostImages)
    throw_user_error("--image-count {}: must be a whole number from 1 to {}", options.image_count,
                     kMostImages);
  check(options.text);
  const NumpyRandom counts(options.text.seed);
  NumpyRandom random = counts;
  for (std::uint64_t i = 0; options.random_image_count && i < options.text.num_prompts; ++i)
    random.randint(1, options.image_count);
  const RandomWorkload text(options.text, random, &random);
  outline_ = text.outline();
  outline_.name = outline_.format = "image";
  outline_.images = true;
  read_ = [options, text, counts, sizes = random] {
    return [options, next = text.read(), counts = counts, sizes = sizes,
            next_content = std::uint64_t{0}]() mutable -> std::shared_ptr<const WorkloadRequest> {
      const std::shared_ptr<const WorkloadRequest> bare = next();
      if (bare == nullptr) return nullptr;
      auto request = std::make_shared<WorkloadRequest>(*bare);
      const std::uint64_t count =
          options.random_image_count ? counts.randint(1, options.image_count) : options.image_count;
      const ImageResolution& size = options.resolution;
      for (std::uint64_t k = 0; k < count; ++k) {
        ImageInput image;
        image.width = static_cast<std::uint32_t>(sizes.randint(size.min_width, size.max_width));
        image.height = static_cast<std::uint32_t>(sizes.randint(size.min_height, size.max_height));
        image.content = options.blank ? 0 : ++next_content;
        request->images.push_back(image);
      }
      return request;
    };
  };
}

}  // namespace tpsim::scheduler
