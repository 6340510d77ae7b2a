// An array of zeros whose memory the system hands out page by page, as elements are written: for tables as
// long as a pool of which a run may use a small part.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace tpsim {

template <typename T>
class ZeroedArray {
  static_assert(std::is_arithmetic_v<T>);

 public:
  ZeroedArray() = default;
  // Throws std::bad_alloc where not even the addresses are to be had.
  explicit ZeroedArray(std::size_t size) : elements_(static_cast<T*>(std::calloc(size, sizeof(T)))) {
    if (size != 0 && elements_ == nullptr) throw std::bad_alloc();
  }

  T* data() { return elements_.get(); }
  const T* data() const { return elements_.get(); }

 private:
  struct Free {
    void operator()(T* elements) const { std::free(elements); }
  };
  std::unique_ptr<T[], Free> elements_;
};

}  // namespace tpsim
