// What gpt-oss writes: messages, each with a header that names its channel, and perhaps whom it is for.
//
//     <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
//     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
//
// The analysis is reasoning, what is for a function is a call, and all else is for the reader.
#pragma once
#include "speech/speech.h"

// As speech_read(), of an empty speech.
void harmony_read(struct speech *speech, struct span text, bool whole);
