// What Gemma 4 writes: reasoning in a channel, and calls whose arguments are nearly JSON: keys without quotes, and strings between marks of their own.
//
//     <|channel>thought
//     …<channel|>…<|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>
//
// Arguments that are JSON are read as well, as a grammar may force them.
#pragma once
#include "speech/speech.h"

// As speech_read(), of an empty speech. A call is told of when it is whole.
void gemma_read(struct speech *speech, struct span text, bool whole);
