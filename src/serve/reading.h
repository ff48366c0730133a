// A thread beside the connections': it reads requests whose forms take long, such as schemas and tools, one at a time. Requests
// without them are read at once, however many of the others wait. Another such thread makes vectors of texts.
#pragma once
#include <stdbool.h>

struct request_reader;
struct request;

struct request_reader *reading_open(void);          // NULL where no thread starts
void reading_stop(struct request_reader *reading);  // refuses those that still wait, and all that come; NULL is welcome
void reading_close(struct request_reader *reading); // once it has been stopped, and nobody asks it any more; NULL is welcome
// Whether nothing waits there, nor is under way.
bool reading_rests(struct request_reader *reading);
// Looks whether the clients are still there. True where the one is not whose request is under way.
bool reading_look(struct request_reader *reading);
// Has the request's route handle it, here or there.
void reading_handle(struct request_reader *reading, struct request *request);
void reading_queue(struct request_reader *reading, struct request *request); // there
