// The official client for Node, as a test drives it: `node converse.mjs BASE_URL TIMES`.
// Streams one chat TIMES times and prints a line of JSON for each: the chunks that came, and the error that ended it if one did.
import OpenAI from "openai";

const [baseURL, times] = process.argv.slice(2);
const api = new OpenAI({ baseURL, apiKey: "sk-none", maxRetries: 0 });
for (let time = 0; time < Number(times); time++) {
  const chunks = [];
  let error = null;
  try {
    const stream = await api.chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "hello" }],
      stream: true,
    });
    for await (const chunk of stream) chunks.push(chunk);
  } catch (raised) {
    error = String(raised.message);
  }
  console.log(JSON.stringify({ chunks, error }));
}
