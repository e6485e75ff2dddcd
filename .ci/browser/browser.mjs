// A headless Chromium, asked over pipes by its DevTools protocol: https://chromedevtools.github.io/devtools-protocol

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--hide-scrollbars",
  "--remote-debugging-pipe",
];

// The browser, with an empty profile of its own, and one page.
export async function start() {
  const profile = mkdtempSync(join(tmpdir(), "chainbreak-browser-"));
  const program = spawn("chromium", [...flags, `--user-data-dir=${profile}`, "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const [, , , asks, answers] = program.stdio;
  const waiting = new Map();
  const said = [];
  let last = 0;
  let rest = "";
  answers.setEncoding("utf8").on("data", (text) => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const message of messages.map((it) => JSON.parse(it))) {
      const { resolve, reject } = waiting.get(message.id) ?? {};
      waiting.delete(message.id);
      if (!resolve) said.push(message);
      else if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  });
  // A browser that ends leaves nobody waiting.
  program.on("exit", (code) => {
    for (const { reject } of waiting.values()) reject(new Error(`chromium ended with ${code}`));
  });
  const ask = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, { resolve, reject });
      asks.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
    });
  const { targetInfos } = await ask("Target.getTargets");
  const { targetId } = targetInfos.find((it) => it.type === "page");
  const { sessionId } = await ask("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => ask(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await page(`${domain}.enable`);
  return new Browser(page, said, async () => {
    program.kill();
    await once(program, "exit");
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  });
}

class Browser {
  constructor(page, said, end) {
    Object.assign(this, { page, said, end });
  }

  // Opens a file as a person with such a screen does.
  async open(file, { width = 1280, height = 900, scheme = "light", anchor = "" } = {}) {
    await this.screen(width, height);
    await this.page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    this.said.length = 0;
    await this.page("Page.navigate", { url: pathToFileURL(file) + anchor });
    await this.value("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))");
    await this.drawn();
  }

  // What an expression comes to in the page.
  async value(expression) {
    const { result, exceptionDetails } = await this.page("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // What stands in the console since the page was opened, whoever wrote it.
  console() {
    const words = {
      "Log.entryAdded": ({ entry }) => entry.text,
      "Runtime.consoleAPICalled": ({ args }) => args.map((it) => it.value ?? it.description).join(" "),
      "Runtime.exceptionThrown": ({ exceptionDetails }) => exceptionDetails.text,
    };
    return this.said.filter((it) => words[it.method]).map((it) => words[it.method](it.params));
  }

  // What it asked for since the page was opened.
  requests() {
    return this.said.filter((it) => it.method === "Network.requestWillBeSent").map((it) => it.params.request.url);
  }

  // Of the screen, or of the whole page on a screen as high as it is: what is off the screen is not drawn.
  async screenshot(whole = false) {
    if (whole) {
      const [width, height] = await this.value("[innerWidth, document.documentElement.scrollHeight]");
      await this.screen(width, height);
      await this.drawn();
    }
    const { data } = await this.page("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }

  async screen(width, height) {
    await this.page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  // Two frames later what is to be seen is on the screen.
  async drawn() {
    await this.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
  }

  async pdf() {
    const { data } = await this.page("Page.printToPDF", { printBackground: true });
    return Buffer.from(data, "base64");
  }
}
