#include "fabric/mpi/message_receives.hpp"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "fabric/outbox.hpp"

namespace copper {
namespace {

bool is_truncation(int error) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(error, &kind);
    return kind == MPI_ERR_TRUNCATE;
}

}  // namespace

void MessageReceives::post_missing() {
    for (std::size_t missing = window_.missing(); missing > 0; --missing) {
        if (spare_receives_.empty()) {
            spare_receives_.push_back(receives_.size());
            receives_.push_back(MPI_REQUEST_NULL);
            buffers_.emplace_back();
            arrived_.resize(receives_.size());
            statuses_.resize(receives_.size());
        }
        post(spare_receives_.back());
        spare_receives_.pop_back();
    }
}

void MessageReceives::post(std::size_t receive) {
    if (buffers_[receive] == nullptr) {
        buffers_[receive] = std::make_unique<std::byte[]>(message_bytes_max);
    }
    MPI_Irecv(buffers_[receive].get(), static_cast<int>(message_bytes_max), MPI_BYTE, MPI_ANY_SOURCE,
              MPI_ANY_TAG, messages_, &receives_[receive]);
    window_.post(receive);
}

// With fault tolerance (ULFM), receives from any source only give errors after a loss, until it is
// acknowledged.
void MessageReceives::acknowledge_losses() {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    MPIX_Comm_failure_ack(messages_);
#endif
}

bool MessageReceives::take(const Take& take) {
    int count = 0;
    const int result = MPI_Testsome(static_cast<int>(receives_.size()), receives_.data(), &count,
                                    arrived_.data(), statuses_.data());
    if (result != MPI_SUCCESS) {
        acknowledge_losses();
    }
    if (count == MPI_UNDEFINED || count == 0) {
        return take_oldest(take);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const MPI_Status& status = statuses_[i];
        take_received(static_cast<std::size_t>(arrived_[i]), status,
                      result == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR, take);
    }
    return true;
}

// MPI_Testsome of Open MPI lets messages arrive after it has looked, and MPI_Test looks again. The receive
// posted first matches the next message.
bool MessageReceives::take_oldest(const Take& take) {
    const std::size_t oldest = window_.first();
    int done = 0;
    MPI_Status status;
    const int result = MPI_Test(&receives_[oldest], &done, &status);
    if (result != MPI_SUCCESS) {
        acknowledge_losses();
    }
    if (done != 0) {
        take_received(oldest, status, result, take);
    }
    return done != 0;
}

void MessageReceives::take_received(std::size_t receive, const MPI_Status& status, int error,
                                    const Take& take) {
    if (error == MPI_SUCCESS) {
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        take(Rank{static_cast<std::uint32_t>(status.MPI_SOURCE)}, static_cast<std::uint64_t>(status.MPI_TAG),
             {buffers_[receive].get(), static_cast<std::size_t>(bytes)});
    } else if (is_truncation(error)) {
        ++counters_.refused;  // our messages are never so large
        if (receives_[receive] != MPI_REQUEST_NULL) {
            MPI_Request_free(&receives_[receive]);
        }
    }
    if (receives_[receive] == MPI_REQUEST_NULL) {
        window_.complete(receive);
        if (window_.missing() > 0) {
            post(receive);
        } else {
            buffers_[receive].reset();
            spare_receives_.push_back(receive);
        }
        post_missing();
    }
}

void MessageReceives::lose_link(std::size_t messages_under_way_max) {
    window_.lose_link(messages_under_way_max);
    post_missing();
}

void MessageReceives::cancel() {
    for (MPI_Request& receive : receives_) {
        if (receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&receive);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
        }
    }
}

}  // namespace copper
