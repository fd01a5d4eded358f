// A value that code can reach only while it holds the lock (the idea of kj's MutexGuarded).
#pragma once

#include <mutex>
#include <utility>

namespace copper {

template <typename T>
class Guarded {
  public:
    class Locked {
      public:
        T* operator->() { return value_; }
        T& operator*() { return *value_; }
        // For a condition variable.
        std::unique_lock<std::mutex>& lock() { return lock_; }

      private:
        friend class Guarded;
        Locked(std::mutex& mutex, T& value) : lock_(mutex), value_(&value) {}
        std::unique_lock<std::mutex> lock_;
        T* value_;
    };

    template <typename... Args>
    explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}

    Locked lock() { return Locked(mutex_, value_); }

  private:
    std::mutex mutex_;
    T value_;
};

}  // namespace copper
