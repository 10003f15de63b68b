// Drives a broker with amqplib; prints one JSON line per step.
// Any failure ends the process with status 1.
"use strict";
const assert = require("node:assert");
const path = require("node:path");
const { createRequire } = require("node:module");

// amqplib is installed below build/: node_modules do not belong in a source tree.
const amqp = createRequire(path.join(process.argv[4], "package.json"))("amqplib");
const [uri, name] = [process.argv[2], process.argv[3]];

const closed = (channel) => new Promise((resolve) => channel.once("error", resolve));
const step = (text) => console.log(JSON.stringify(text));

async function confirms(connection) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: true });
  for (let number = 0; number < 500; number++) {
    channel.sendToQueue(name, Buffer.from(String(number)), { persistent: true, headers: { number } });
  }
  await channel.waitForConfirms();
  assert.strictEqual((await channel.checkQueue(name)).messageCount, 500);
  await channel.close();
  step("confirms");
}

async function consume(connection) {
  const channel = await connection.createChannel();
  await channel.prefetch(25);
  const seen = [];
  await new Promise((resolve, reject) => {
    channel
      .consume(name, (message) => {
        // null means that the queue is deleted, as below.
        if (message === null) return;
        seen.push(Number(message.content.toString()));
        assert.strictEqual(message.properties.headers.number, seen.length - 1);
        channel.ack(message);
        if (seen.length === 500) resolve();
      })
      .catch(reject);
  });
  assert.deepStrictEqual(seen, [...Array(500).keys()]);
  assert.strictEqual((await channel.deleteQueue(name)).messageCount, 0);
  await channel.close();
  step("consume");
}

async function content(connection) {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue("", { exclusive: true });
  const body = Buffer.alloc(700000, "abc");
  const options = {
    contentType: "text/plain", contentEncoding: "utf-8", deliveryMode: 2, priority: 5, correlationId: "c",
    replyTo: "r", expiration: "60000", messageId: "m", timestamp: 1700000000, type: "t", appId: "a",
    headers: { text: "ü", number: -5, big: 2 ** 40, real: 1.5, yes: true, list: [1, "two"], table: { deep: {} }, none: null },
  };
  for (const content of [body, Buffer.alloc(0)]) channel.sendToQueue(queue, content, options);
  for (const content of [body, Buffer.alloc(0)]) {
    const message = await channel.get(queue, { noAck: true });
    assert.ok(message.content.equals(content));
    for (const [key, value] of Object.entries(options)) assert.deepStrictEqual(message.properties[key], value, key);
  }
  assert.strictEqual(await channel.get(queue), false);
  await channel.close();
  step("content");
}

async function topology(connection) {
  const channel = await connection.createChannel();
  await channel.assertExchange(name, "topic", { durable: false, autoDelete: true });
  await channel.assertExchange(name + "-all", "fanout", { durable: false });
  await channel.bindExchange(name + "-all", name, "a.#");
  const { queue } = await channel.assertQueue("", { exclusive: true });
  await channel.bindQueue(queue, name + "-all", "");
  const returned = new Promise((resolve) => channel.once("return", resolve));
  channel.publish(name, "a.b", Buffer.from("through"));
  channel.publish(name, "b", Buffer.from("back"), { mandatory: true });
  assert.strictEqual((await returned).content.toString(), "back");
  const message = await channel.get(queue);
  assert.strictEqual(message.content.toString(), "through");
  channel.nack(message);
  const again = await channel.get(queue);
  assert.strictEqual(again.fields.redelivered, true);
  channel.ackAll();
  await channel.unbindExchange(name + "-all", name, "a.#");
  await channel.deleteExchange(name + "-all");
  await channel.close();
  step("topology");
}

async function errors(connection) {
  const channel = await connection.createChannel();
  const error = closed(channel);
  await assert.rejects(channel.checkQueue(name + "-missing"), /404 \(NOT-FOUND\) with message "NOT_FOUND - no queue/);
  assert.strictEqual((await error).code, 404);
  const other = await connection.createChannel();
  const failed = closed(other);
  await other.assertQueue(name + "-kind", { durable: false, exclusive: true });
  await assert.rejects(
    other.assertQueue(name + "-kind", { durable: false, exclusive: true, messageTtl: 5 }), /inequivalent arg 'x-message-ttl'/);
  assert.strictEqual((await failed).code, 406);
  step("errors");
}

async function cancelled(connection) {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue(name + "-gone", { durable: false });
  const told = new Promise((resolve) => channel.consume(queue, (message) => message === null && resolve()));
  const other = await connection.createChannel();
  await other.deleteQueue(queue);
  await told;
  await channel.recover();
  step("cancelled");
}

async function main() {
  const connection = await amqp.connect(uri + "?heartbeat=5");
  assert.strictEqual(connection.connection.serverProperties.product, "RabbitMQ");
  for (const part of [confirms, consume, content, topology, errors, cancelled]) await part(connection);
  await connection.close();
  await assert.rejects(amqp.connect(uri.replace(":guest@", ":wrong@")), /ACCESS_REFUSED|403/);
  step("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
