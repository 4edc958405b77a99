#pragma once
// A doubly linked list through a member of its elements: no allocation, removal from the middle, an
// element knows which list it is in. Lists may share a link: an element is in one of them at a
// time, and taking it out of another aborts. Elements must be removed before they die.

#include <cstddef>

#include "base/check.h"

namespace sandbox::tcp {

template <class T>
struct Link {
  T* before = nullptr;
  T* after = nullptr;
  const void* list = nullptr;
};

template <class T, Link<T> T::*link>
class IntrusiveList {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] T* front() const { return first_; }
  [[nodiscard]] T* back() const { return last_; }
  static T* next(const T& item) { return (item.*link).after; }

  // Nothing happens when it is in already.
  void push_back(T& item) {
    Link<T>& own = item.*link;
    if (own.list == this) return;
    SANDBOX_CHECK(own.list == nullptr);
    own = {last_, nullptr, this};
    (last_ != nullptr ? (last_->*link).after : first_) = &item;
    last_ = &item;
    ++size_;
  }

  // Nothing happens when it is in no list.
  void remove(T& item) {
    Link<T>& own = item.*link;
    if (own.list == nullptr) return;
    SANDBOX_CHECK(own.list == this);
    (own.before != nullptr ? (own.before->*link).after : first_) = own.after;
    (own.after != nullptr ? (own.after->*link).before : last_) = own.before;
    own = {};
    --size_;
  }

  T* pop_front() {
    T* item = first_;
    if (item != nullptr) remove(*item);
    return item;
  }

  void move_to_back(T& item) {
    if (&item == last_) return;
    remove(item);
    push_back(item);
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sandbox::tcp
