// What the official TypeScript client offers, found by looking at it, so that nothing new can be missed.
import * as sdk from "@nodeops-createos/sandbox";

const isClass = (value) => typeof value === "function" && /^class\b/.test(Function.prototype.toString.call(value));
const isError = (value) => isClass(value) && (value === sdk.CreateosSandboxError || value.prototype instanceof sdk.CreateosSandboxError);

/** Every call: `Class.method` (methods, getters, statics) and the name of each exported function or value. */
export function calls() {
  const found = new Set();
  for (const [name, value] of Object.entries(sdk)) {
    if (isError(value)) continue;
    if (!isClass(value)) {
      found.add(name);
      continue;
    }
    for (const member of Object.getOwnPropertyNames(value.prototype)) {
      if (member !== "constructor") found.add(`${name}.${member}`);
    }
    for (const member of Object.getOwnPropertyNames(value)) {
      if (!["length", "name", "prototype"].includes(member)) found.add(`${name}.${member}`);
    }
  }
  return found;
}

/** The names of the error classes. */
export function errors() {
  return new Set(Object.entries(sdk).filter(([, value]) => isError(value)).map(([name]) => name));
}
