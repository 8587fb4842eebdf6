// node perfetto.js DIRECTORY TRACE QUERY...: loads a trace with the parser of Perfetto's web page, which is in DIRECTORY
// (engine_bundle.js and its WebAssembly), and prints the number that each SQL query gives, one a line.
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const { MessageChannel } = require('worker_threads');

const [directory, trace, ...queries] = process.argv.slice(2);
const asset = (name) => fs.readFileSync(path.join(directory, path.basename(String(name))));

// What the page's worker finds in a browser.
globalThis.self = globalThis;
globalThis.location = { href: 'http://localhost/', protocol: 'http:', host: 'localhost' };
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.XMLHttpRequest = class {
  open(_, url) { this.url = url; }
  send() { Object.assign(this, { status: 200, response: asset(this.url) }); }
};
globalThis.fetch = async (url) => new Response(asset(url), { headers: { 'content-type': 'application/wasm' } });
console.warn = () => {};
const node = globalThis.process;
delete globalThis.process;
vm.runInThisContext(asset('engine_bundle.js').toString());
globalThis.process = node;

// Its calls are protocol buffers (TraceProcessorRpc): streams of length and message.
const APPEND = 1, FINISH = 2, QUERY = 3;
const varint = (number) => {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
  return Buffer.from([...bytes, number]);
};
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);
const fields = (message) => {
  const found = [];
  let at = 0;
  const read = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = message[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    return value;
  };
  const fixed = (size) => message.subarray(at, (at += size));
  while (at < message.length) {
    const key = read();
    const value = { 0: read, 1: () => fixed(8), 2: () => fixed(read()), 5: () => fixed(4) }[key & 7]();
    found.push([key >> 3, value]);
  }
  return found;
};
const field = (message, wanted) => (fields(message).find(([name]) => name === wanted) || [])[1];

const { port1, port2 } = new MessageChannel();
let sequence = 0;
const call = (method, argument) => new Promise((answered) => {
  port1.once('message', (answer) => answered(field(Buffer.from(answer), 1)));
  const message = Buffer.concat([number(1, sequence++), number(2, method), argument]);
  port1.postMessage(new Uint8Array(bytes(1, message)));
});

(async () => {
  globalThis.onmessage({ data: port2 });
  const whole = fs.readFileSync(trace);
  const none = Buffer.alloc(0);
  // The module is ready when it answers; messages before that wait in the port.
  await new Promise((ready) => setTimeout(ready, 3000));
  for (let at = 0; at < whole.length; at += 1 << 20) await call(APPEND, bytes(101, whole.subarray(at, at + (1 << 20))));
  await call(FINISH, none);
  for (const query of queries) {
    const result = field(await call(QUERY, bytes(103, bytes(1, Buffer.from(query)))), 203);
    const error = field(result, 2);
    if (error && error.length) throw new Error(`${query}: ${error}`);
    const cells = field(field(result, 3), 2);
    console.log(String(field(Buffer.concat([Buffer.from([8]), cells]), 1)));
  }
  process.exit(0);
})().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
