// Loaded into the CDK CLI, and into nothing that the CLI starts.
delete process.env.NODE_OPTIONS;
// What jsii runs lies in a new folder each time: nothing of it would ever be found again.
delete process.env.NODE_COMPILE_CACHE;

// What takes AWS minutes takes the engine seconds, so the CLI looks ten times as often: its pauses between two looks
// are 0.5 to 5 s long. Time limits are longer and stay as they are.
const wait = globalThis.setTimeout;
globalThis.setTimeout = (then, delay, ...rest) => wait(then, delay >= 500 && delay <= 5000 ? delay / 10 : delay, ...rest);

// Whoever started the CLI holds the other end of its input, and is gone when that closes, however it ended.
process.stdin.on("end", () => process.exit(1)).resume().unref();
