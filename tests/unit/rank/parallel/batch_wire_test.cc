#include "rank/parallel/batch_wire.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/rank/parallel/random_stream.h"

namespace tpsim::rank {
namespace {

TEST(BatchWire, FramesComeOutAsTheyWentIn) {
  RandomStream stream({});
  std::vector<proto::ForwardBatch> batches(300);
  MessageWriter writer;
  writer.add(RunSetup{7, 1, 0x123456789abcdefu});
  for (proto::ForwardBatch& batch : batches) {
    stream.next(batch);
    writer.add(batch);
    writer.add(Outcome{batch.sequence_number(), 0.1 * static_cast<double>(batch.sequence_number())});
  }
  writer.add_shutdown(-3);
  EXPECT_EQ(writer.num_batches(), 300u);

  MessageReader reader(writer.bytes());
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kSetup);
  EXPECT_EQ(reader.setup().run_index, 7u);
  EXPECT_EQ(reader.setup().configuration_hash, 0x123456789abcdefu);
  proto::ForwardBatch copy;
  for (const proto::ForwardBatch& batch : batches) {
    ASSERT_TRUE(reader.next());
    ASSERT_EQ(reader.kind(), FrameKind::kBatch);
    reader.read(copy);
    ASSERT_EQ(copy.SerializeAsString(), batch.SerializeAsString());
    ASSERT_TRUE(reader.next());
    ASSERT_EQ(reader.kind(), FrameKind::kOutcome);
    ASSERT_EQ(reader.outcome().sequence_number, batch.sequence_number());
  }
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kShutdown);
  EXPECT_EQ(reader.exit_status(), -3);
  EXPECT_FALSE(reader.next());
  writer.clear();
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.num_batches(), 0u);
}

TEST(BatchWire, DamagedMessagesAreRefused) {
  MessageWriter writer;
  writer.add(RunSetup{});
  const std::vector<char> good(writer.bytes().begin(), writer.bytes().end());
  for (std::size_t size = 1; size < good.size(); ++size) {
    MessageReader reader(std::span<const char>(good).first(size));
    EXPECT_THROW(reader.next(), std::runtime_error) << size;
  }
  std::vector<char> bad = good;
  bad[0] = 9;
  MessageReader reader(bad);
  EXPECT_THROW(reader.next(), std::runtime_error);
  MessageReader as_outcome(good);
  ASSERT_TRUE(as_outcome.next());
  EXPECT_THROW(as_outcome.exit_status(), std::runtime_error);
}

TEST(BatchWire, ConfigurationHashIsFnv1a) {
  EXPECT_EQ(configuration_hash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(configuration_hash("a"), 0xaf63dc4c8601ec8cu);
}

}  // namespace
}  // namespace tpsim::rank
