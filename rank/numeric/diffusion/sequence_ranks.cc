#include "rank/numeric/diffusion/sequence_ranks.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "proto/base/ceil_div.h"
#include "proto/base/error.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {

SequenceRanks::SequenceRanks(const SequenceSplit& split, const SelfAttention& attention,
                             Collectives& collectives, ThreadPool& pool)
    : split_(split), attention_(attention), collectives_(collectives), pool_(pool) {
  if (split.ring > 1 && !attention.backend->dense())
    throw_user_error(
        "--ring-degree {}: softmaxes over parts of the keys are merged, which is computed for dense "
        "backends, not for {}",
        split.ring, attention.backend->name);
}

Share SequenceRanks::share(std::uint32_t place, std::uint32_t count) const {
  const std::uint32_t each = ceil_div(count, split_.sequence());
  const std::uint32_t first = std::min(count, place % split_.sequence() * each);
  return {first, std::min(each, count - first)};
}

Share SequenceRanks::tokens(std::uint32_t i, std::uint32_t count) const { return share(place(i), count); }

Share SequenceRanks::ring_share(std::uint32_t ring, std::uint32_t count) const {
  const Share first = share(ring * split_.ulysses, count);
  const Share last = share(ring * split_.ulysses + split_.ulysses - 1, count);
  return {first.first, last.first + last.count - first.first};
}

// From [own tokens, all heads] to [tokens of the ring place, own heads]: one message for all of `parts`,
// whose results lie one behind the other.
void SequenceRanks::exchange_heads(const Call& call, const std::vector<const PerRank*>& parts,
                                   PerRank& heads) {
  const std::uint32_t degree = split_.ulysses, ranks = collectives_.tp_size();
  const std::size_t all = std::size_t{call.heads} * call.dim, mine = all / degree;
  Collectives::Messages sent(local(), std::vector<std::vector<float>>(ranks)), received;
  for (std::uint32_t i = 0; i < local(); ++i) {
    const std::uint32_t group = place(i) - place(i) % degree;
    const std::uint32_t own = tokens(i, call.count(prompt(i))).count;
    for (std::uint32_t peer = 0; peer < degree; ++peer) {
      std::vector<float>& message = sent[i][rank_at(group + peer, i)];
      for (const PerRank* const part : parts) {
        for (std::uint32_t t = 0; t < own; ++t) {
          const float* const from = (*part)[i].data() + t * all + peer * mine;
          message.insert(message.end(), from, from + mine);
        }
      }
    }
  }
  collectives_.all_to_all(sent, received);
  heads.assign(local(), {});
  for (std::uint32_t i = 0; i < local(); ++i) {
    const std::uint32_t group = place(i) - place(i) % degree;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      for (std::uint32_t peer = 0; peer < degree; ++peer) {
        const std::vector<float>& message = received[i][rank_at(group + peer, i)];
        const auto size = static_cast<std::ptrdiff_t>(message.size() / parts.size());
        const auto from = message.begin() + static_cast<std::ptrdiff_t>(part) * size;
        heads[i].insert(heads[i].end(), from, from + size);
      }
    }
  }
}

namespace {

// Head `head` of rows [count, width], which begin at `rows`.
HeadRows head_rows(const float* rows, std::uint32_t count, std::size_t width, std::uint32_t head,
                   std::uint32_t dim) {
  return {rows + std::size_t{head} * dim, count, width};
}

}  // namespace

void SequenceRanks::attend_rank(const Call& call, std::uint32_t count, const std::vector<float>& heads,
                                float* out, KeptPairs& pairs) const {
  const std::uint32_t own = call.heads / split_.ulysses;
  const std::size_t width = std::size_t{own} * call.dim, size = width * count;
  std::vector<KeptPairs> counted(own);
  pool_.parallel_for(own, [&](std::uint32_t head, std::uint32_t) {
    const auto rows = [&](std::size_t part) {
      return head_rows(heads.data() + part * size, count, width, head, call.dim);
    };
    std::vector<float> result(std::size_t{count} * call.dim);
    attention_.backend->attend({.q = rows(0),
                                .k = rows(1),
                                .v = rows(2),
                                .dim = call.dim,
                                .grid = call.grid,
                                .layer = call.layer,
                                .step = step_},
                               attention_.parameters, result.data(), counted[head]);
    for (std::uint32_t t = 0; t < count; ++t)
      std::copy_n(result.data() + std::size_t{t} * call.dim, call.dim,
                  out + t * width + std::size_t{head} * call.dim);
  });
  for (const KeptPairs& one : counted) {
    pairs.all += one.all;
    pairs.kept += one.kept;
  }
}

// Hop after hop every rank meets the keys and values that it has with its queries, and sends them on to the
// one before it.
void SequenceRanks::attend_ring(const Call& call, const PerRank& heads, PerRank& out) {
  const std::uint32_t own = call.heads / split_.ulysses;
  const std::size_t width = std::size_t{own} * call.dim;
  std::vector<std::vector<attention::SoftmaxPart>> sums(local(), std::vector<attention::SoftmaxPart>(own));
  std::vector<std::vector<float>> passing(local());
  std::vector<Share> queries(local());
  std::vector<std::uint32_t> places(local());
  for (std::uint32_t i = 0; i < local(); ++i) {
    places[i] = place(i) % split_.sequence() / split_.ulysses;
    queries[i] = ring_share(places[i], call.count(prompt(i)));
    passing[i].assign(heads[i].begin() + static_cast<std::ptrdiff_t>(queries[i].count * width),
                      heads[i].end());
    for (attention::SoftmaxPart& sum : sums[i]) sum.clear(queries[i].count, call.dim);
  }
  for (std::uint32_t hop = 0; hop < split_.ring; ++hop) {
    for (std::uint32_t i = 0; i < local(); ++i) {
      const std::uint32_t keys = ring_share((places[i] + hop) % split_.ring, call.count(prompt(i))).count;
      if (keys == 0 || queries[i].count == 0) continue;
      const float* const kv = passing[i].data();
      pool_.parallel_for(own, [&](std::uint32_t head, std::uint32_t) {
        attention::SoftmaxPart part;
        dense_part({.q = head_rows(heads[i].data(), queries[i].count, width, head, call.dim),
                    .k = head_rows(kv, keys, width, head, call.dim),
                    .v = head_rows(kv + keys * width, keys, width, head, call.dim),
                    .dim = call.dim},
                   {}, part);
        sums[i][head].add(part);
      });
      pairs_.keep(std::uint64_t{queries[i].count} * keys * own);
    }
    if (hop + 1 == split_.ring) break;
    Collectives::Messages sent(local(), std::vector<std::vector<float>>(collectives_.tp_size())), received;
    const auto neighbour = [&](std::uint32_t i, std::uint32_t by) {
      const std::uint32_t own = place(i) % split_.sequence();
      return rank_at(place(i) - own + (own + by * split_.ulysses) % split_.sequence(), i);
    };
    for (std::uint32_t i = 0; i < local(); ++i) sent[i][neighbour(i, split_.ring - 1)].swap(passing[i]);
    collectives_.all_to_all(sent, received);
    for (std::uint32_t i = 0; i < local(); ++i) passing[i].swap(received[i][neighbour(i, 1)]);
  }
  out.assign(local(), {});
  std::vector<float> result;
  for (std::uint32_t i = 0; i < local(); ++i) {
    out[i].resize(queries[i].count * width);
    result.resize(std::size_t{queries[i].count} * call.dim);
    for (std::uint32_t head = 0; head < own; ++head) {
      divide(sums[i][head], result.data());
      for (std::uint32_t t = 0; t < queries[i].count; ++t)
        std::copy_n(result.data() + std::size_t{t} * call.dim, call.dim,
                    out[i].data() + t * width + std::size_t{head} * call.dim);
    }
  }
}

void SequenceRanks::attend(const Call& call, const PerRank& q, const PerRank& k, const PerRank& v,
                           PerRank& out) {
  if (call.heads % split_.ulysses != 0)
    throw_user_error("--ulysses-degree {}: does not divide the {} heads of the transformer{}", split_.ulysses,
                     call.heads, split_.tp > 1 ? " that a rank of --tp-size has" : "");
  if (call.text[0] > 0 && attention_.backend->select != nullptr)
    throw_user_error(
        "--attention-backends {}: chooses among the tokens of videos, and is not computed where text "
        "is among them",
        attention_.backend->name);
  PerRank heads, results(local());
  exchange_heads(call, {&q, &k, &v}, heads);
  const std::size_t width = std::size_t{call.heads / split_.ulysses} * call.dim;
  if (split_.ring == 1) {
    for (std::uint32_t i = 0; i < local(); ++i) {
      const std::uint32_t count = call.count(prompt(i));
      results[i].resize(count * width);
      attend_rank(call, count, heads[i], results[i].data(), pairs_);
    }
  } else {
    attend_ring(call, heads, results);
  }
  // Back: each Ulysses rank gets its tokens of all heads.
  const std::uint32_t degree = split_.ulysses;
  Collectives::Messages sent(local(), std::vector<std::vector<float>>(collectives_.tp_size())), received;
  for (std::uint32_t i = 0; i < local(); ++i) {
    const std::uint32_t group = place(i) - place(i) % degree;
    const float* at = results[i].data();
    for (std::uint32_t peer = 0; peer < degree; ++peer) {
      const std::size_t size = share(group + peer, call.count(prompt(i))).count * width;
      sent[i][rank_at(group + peer, i)].assign(at, at + size);
      at += size;
    }
  }
  collectives_.all_to_all(sent, received);
  out.assign(local(), {});
  for (std::uint32_t i = 0; i < local(); ++i) {
    const std::uint32_t group = place(i) - place(i) % degree;
    const std::uint32_t own = tokens(i, call.count(prompt(i))).count;
    out[i].resize(own * width * degree);
    for (std::uint32_t t = 0; t < own; ++t) {
      for (std::uint32_t peer = 0; peer < degree; ++peer)
        std::copy_n(received[i][rank_at(group + peer, i)].data() + t * width, width,
                    out[i].data() + (std::size_t{t} * degree + peer) * width);
    }
  }
}

std::vector<std::vector<float>> SequenceRanks::gather(const PerRank& parts, const OfPrompts& counts,
                                                      std::uint32_t width) {
  const std::uint32_t most = *std::max_element(counts.begin(), counts.begin() + split_.cfg);
  const std::size_t each = std::size_t{ceil_div(most, split_.sequence())} * width;
  PerRank padded = parts;
  std::vector<const float*> views;
  for (std::vector<float>& part : padded) {
    part.resize(each);
    views.push_back(part.data());
  }
  std::vector<float> all(each * collectives_.tp_size());
  collectives_.all_gather(views, 1, static_cast<std::uint32_t>(each), all.data());
  std::vector<std::vector<float>> out(split_.cfg);
  for (std::uint32_t place = 0; place < split_.cfg * split_.sequence(); ++place) {
    const std::uint32_t prompt = place / split_.sequence();
    const float* const from = all.data() + place * split_.tp * each;
    out[prompt].insert(out[prompt].end(), from,
                       from + std::size_t{share(place, counts[prompt]).count} * width);
  }
  return out;
}

void SequenceRanks::reduce(PerRank& parts, const std::vector<float>& bias) const {
  if (split_.tp > 1) {
    Collectives::Messages sent(local(), std::vector<std::vector<float>>(collectives_.tp_size())), received;
    for (std::uint32_t i = 0; i < local(); ++i) {
      for (std::uint32_t t = 0; t < split_.tp; ++t) sent[i][place(i) * split_.tp + t] = parts[i];
    }
    collectives_.all_to_all(sent, received);
    for (std::uint32_t i = 0; i < local(); ++i) {
      std::vector<const float*> views;
      for (std::uint32_t t = 0; t < split_.tp; ++t)
        views.push_back(received[i][place(i) * split_.tp + t].data());
      sum_in_rank_order(views, parts[i].size(), parts[i].data());
    }
  }
  if (bias.empty()) return;
  for (std::vector<float>& part : parts)
    add_bias(part.data(), static_cast<std::uint32_t>(part.size() / bias.size()), bias);
}

}  // namespace tpsim::rank
