#include "proto/base/archive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tpsim {
namespace {

enum class Kind : std::uint8_t { kOne, kTwo };

struct Point {
  double x = 0;
  std::uint32_t y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

struct Named {
  std::string name;
  std::vector<Point> points;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(name, points);
  }
  friend bool operator==(const Named&, const Named&) = default;
};

struct Everything {
  int number = 0;
  bool flag = false;
  Kind kind = Kind::kOne;
  std::string text;
  std::vector<std::uint32_t> plain;
  std::vector<Named> named;
  std::vector<bool> bits;
  std::deque<Named> queue;
  std::array<double, 3> three = {};
  std::optional<double> maybe, none;
  std::map<std::string, std::pair<int, std::string>> map;
  std::unordered_map<std::uint32_t, Named> table;
  std::unordered_set<std::uint64_t> set;
  std::set<std::pair<int, int>> sorted;
  std::priority_queue<int, std::vector<int>, std::greater<>> first;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Named>> owned;
  std::vector<Named*> pointers;
  Named* null = nullptr;
  std::shared_ptr<const Named> shared, same, nobody;
  ZeroedArray<std::uint8_t> made, unmade;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(number, flag, kind, text, plain, named, bits, queue, three, maybe, none, map, table, set, sorted,
            first, random, owned, pointers, null, shared, same, nobody);
    archive.array(made, 3);
    archive.array(unmade, 3);
  }
};

Everything example() {
  Everything e;
  e.number = -7;
  e.flag = true;
  e.kind = Kind::kTwo;
  e.text = std::string("with\0zero", 9);
  e.plain = {1, 2, 3};
  e.named = {{"a", {{1.5, 2}}}, {"", {}}};
  e.bits = {true, false, true};
  e.queue = {{"q", {}}};
  e.three = {1, 2, 3};
  e.maybe = 0.25;
  e.map = {{"one", {1, "x"}}, {"two", {2, "y"}}};
  e.table = {{4, {"four", {}}}};
  e.set = {9, 10};
  e.sorted = {{1, 2}, {1, 1}};
  for (const int value : {3, 1, 2}) e.first.push(value);
  e.random.seed(5);
  e.random.discard(100);
  e.owned.push_back(std::make_unique<Named>(Named{"first", {}}));
  e.owned.push_back(nullptr);
  e.owned.push_back(std::make_unique<Named>(Named{"third", {}}));
  e.pointers = {e.owned[2].get(), nullptr, e.owned[0].get(), e.owned[2].get()};
  e.shared = std::make_shared<const Named>(Named{"shared", {{1, 1}}});
  e.same = e.shared;
  e.made = ZeroedArray<std::uint8_t>(3);
  e.made.data()[1] = 8;
  return e;
}

TEST(Archive, GivesBackWhatWasPutIn) {
  const Everything in = example();
  StateWriter writer;
  writer(in);
  Everything out;
  out.plain = {9, 9, 9, 9, 9};  // what was there goes
  out.none = 3;
  StateReader reader(writer.bytes());
  reader(out);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(out.number, in.number);
  EXPECT_EQ(out.flag, in.flag);
  EXPECT_EQ(out.kind, in.kind);
  EXPECT_EQ(out.text, in.text);
  EXPECT_EQ(out.plain, in.plain);
  EXPECT_EQ(out.named, in.named);
  EXPECT_EQ(out.bits, in.bits);
  EXPECT_EQ(out.queue, in.queue);
  EXPECT_EQ(out.three, in.three);
  EXPECT_EQ(out.maybe, in.maybe);
  EXPECT_EQ(out.none, in.none);
  EXPECT_EQ(out.map, in.map);
  EXPECT_EQ(out.table, in.table);
  EXPECT_EQ(out.set, in.set);
  EXPECT_EQ(out.sorted, in.sorted);
  EXPECT_EQ(out.first.top(), 1);
  EXPECT_EQ(out.first.size(), 3u);
  EXPECT_EQ(out.random, in.random);
  ASSERT_EQ(out.owned.size(), 3u);
  EXPECT_EQ(*out.owned[0], *in.owned[0]);
  EXPECT_EQ(out.owned[1], nullptr);
  EXPECT_EQ(out.pointers,
            (std::vector<Named*>{out.owned[2].get(), nullptr, out.owned[0].get(), out.owned[2].get()}));
  EXPECT_EQ(out.null, nullptr);
  EXPECT_EQ(*out.shared, *in.shared);
  EXPECT_EQ(out.same, out.shared);
  EXPECT_EQ(out.nobody, nullptr);
  EXPECT_EQ(out.made.data()[1], 8);
  EXPECT_EQ(out.unmade.data(), nullptr);
}

TEST(Archive, InBlocksIsTheSame) {
  Everything in = example();
  in.plain.resize(20'000, 7);
  for (int i = 0; i < 10'000; ++i) in.named.push_back({"name", {{1.0 * i, 1}}});
  StateWriter whole;
  whole(in);
  std::string blocks;
  std::size_t largest = 0;
  StateWriter writer([&](std::string_view block) {
    blocks += block;
    largest = std::max(largest, block.size());
  });
  writer(in);
  writer.flush();
  EXPECT_EQ(blocks, whole.bytes());
  EXPECT_LT(largest, blocks.size() / 2);
}

TEST(Archive, LongArraysOfZerosAreShort) {
  constexpr std::size_t kCount = 1'000'000;
  ZeroedArray<std::uint16_t> in(kCount), out;
  in.data()[3] = in.data()[kCount - 1] = 5;
  StateWriter writer;
  writer.array(in, kCount);
  EXPECT_LT(writer.bytes().size(), 10'000u);
  StateReader reader(writer.bytes());
  reader.array(out, kCount);
  EXPECT_TRUE(reader.at_end());
  EXPECT_TRUE(std::equal(in.data(), in.data() + kCount, out.data()));
}

TEST(Archive, OfBytesThatEndTooEarlyThrows) {
  StateWriter writer;
  writer(example());
  for (std::size_t length = 0; length < writer.bytes().size(); ++length) {
    Everything out;
    StateReader reader(std::string_view(writer.bytes()).substr(0, length));
    EXPECT_THROW(reader(out), std::length_error) << length;
  }
}

TEST(Archive, AnObjectThatNobodyOwnsIsAMistake) {
  Named stranger;
  Named* pointer = &stranger;
  StateWriter writer;
  EXPECT_THROW(writer(pointer), std::logic_error);
}

}  // namespace
}  // namespace tpsim
