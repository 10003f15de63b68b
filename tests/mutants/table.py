"""The mutants: each has one small fault that breaks a fact, and the tests that must notice it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Breaks `fact`: `new` replaces `old`, which occurs once in `path` (below the package)."""

    fact: str
    what: str
    path: str
    old: str
    new: str
    # pytest ids, relative to the root.
    tests: list[str]

    def applied_to(self, text: str) -> str:
        """The text of the file with the fault; raises AssertionError unless `old` occurs once."""
        count = text.count(self.old)
        assert count == 1, f"{self.fact}: {self.old!r} stands {count} times in {self.path}"
        return text.replace(self.old, self.new)


def mutant(fact: str, what: str, path: str, old: str, new: str, *tests: str) -> Mutant:
    """Make a mutant; `tests` are relative to `tests/`."""
    return Mutant(fact, what, path, old, new, [f"tests/{test}" for test in tests])


MUTANTS: list[Mutant] = [
    mutant(
        "S5",
        "transient messages are journaled",
        "queues/paged_queue.py",
        "        if self.is_durable and (entry.persistent or self.journals_transient):\n            self.store.append(entry, now_ms)\n        self.ready.append(entry)",
        "        if self.is_durable:\n            self.store.append(entry, now_ms)\n        self.ready.append(entry)",
        "kill/test_restart.py::test_what_is_not_durable_is_gone",
    ),
    mutant(
        "S7",
        "definitions are not synced",
        "broker/definitions/metadata_sqlite.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = OFF",
        "broker/definitions/test_metadata_sqlite.py",
    ),
    mutant(
        "S9",
        "a binding is durable when one of its ends is",
        "routing/exchange.py",
        "self.source.durable and self.destination.durable",
        "self.source.durable or self.destination.durable",
        "broker/definitions/test_durable.py::test_s9_a_binding_is_stored_when_both_its_ends_are",
    ),
    mutant(
        "S12",
        "a persistent publish is confirmed at once",
        "broker/channel/channel.py",
        "confirms.add(self.vhost.journal.batch, is_for_disk)",
        "confirms.add(self.vhost.journal.batch, False)",
        "protocol/test_confirms.py::test_a_persistent_message_is_confirmed_by_the_commit_only",
    ),
    mutant(
        "S14",
        "the journal is not synced",
        "store/disk/flusher.py",
        "        self._handle.write(self._synced, parts)\n        self._handle.sync()\n",
        "        self._handle.write(self._synced, parts)\n",
        "store/test_flusher.py",
        "queues/test_queue_on_store.py",
    ),
    mutant(
        "S17",
        "no batch is sealed for its size",
        "store/journal.py",
        "self.pending_bytes >= self.buffer_bytes",
        "False",
        "store/test_journal_due.py",
    ),
    mutant(
        "S18",
        "no batch is sealed for its age",
        "store/journal.py",
        "now_ms - self.oldest_pending_ms >= FLUSH_INTERVAL_MS",
        "False",
        "store/test_journal_due.py",
    ),
    mutant(
        "S19",
        "who waits for a confirm waits for the tick",
        "store/journal.py",
        "        if len(batch.runs) > 0 or len(batch.callbacks) > 0",
        "        if len(batch.callbacks) > 0",
        "store/test_journal_due.py::test_s19_nobody_who_waits_waits_for_the_tick",
    ),
    mutant(
        "S19",
        "an idle node waits for the tick",
        "server/vhost_driver.py",
        "            self._shell.call_when_idle(self)",
        "            pass",
        "server/test_idle_flush.py::test_a_publish_to_an_idle_node_waits_for_no_timer",
    ),
    mutant(
        "S19",
        "every publish of a trickle is a reason to write",
        "store/journal.py",
        "now_ms - self._written_ms >= FLUSH_INTERVAL_MS",
        "True",
        "store/test_journal_due.py::test_s19_an_idle_node_keeps_back_what_follows_a_write_closely",
    ),
    mutant(
        "S26",
        "the transient store is kept over a start",
        "store/disk/store_reader.py",
        "        files.remove_tree(TRANSIENT_NAME)\n",
        "        pass\n",
        "store/test_segments.py::test_transient_messages_are_paged_and_do_not_outlive_the_node",
    ),
    mutant(
        "S28",
        "a content file grows beyond its size",
        "store/content_store.py",
        "            or file.size_bytes >= self.file_size_limit\n",
        "",
        "store/test_content_store.py::test_files_fill_up_to_the_limit_and_ids_ascend",
    ),
    mutant(
        "S33",
        "a file without anything valid stays",
        "store/content_store.py",
        "            if file.valid_bytes == 0:\n                self._drop_if_dead(file)\n",
        "",
        "store/test_content_store.py::test_a_file_goes_with_its_last_content_and_the_current_one_stays",
    ),
    mutant(
        "S34",
        "compaction waits for two thirds of garbage",
        "store/content_store.py",
        "self.garbage_bytes * 2 <= self.total_bytes",
        "self.garbage_bytes * 3 <= self.total_bytes * 2",
        "store/test_content_compaction.py::test_compaction_waits_for_garbage_and_files",
    ),
    mutant(
        "S34",
        "compaction begins with two files",
        "store/content_store.py",
        "len(self.files) < COMPACTION_FILES_MIN",
        "len(self.files) < 2",
        "store/test_content_compaction.py::test_compaction_waits_for_garbage_and_files",
    ),
    mutant(
        "S37",
        "a reference is counted for the first queue only",
        "store/content_store.py",
        "        references = last - first\n",
        "        references = 1\n",
        "store/test_content_store.py::test_a_fan_out_is_stored_once_and_removed_last",
    ),
    mutant(
        "S38",
        "an ack of what is written is not recorded",
        "store/journal.py",
        "            ledger.journaled.add(position.seq)\n            self.mark_dirty(ledger)\n            position.journal_state = NOT_JOURNALED\n            content",
        "            position.journal_state = NOT_JOURNALED\n            content",
        "store/test_journal_machine.py",
    ),
    mutant(
        "S40",
        "a segment takes one position too many",
        "store/queue_store.py",
        "if position.seq >= segment_end:",
        "if position.seq > segment_end:",
        "store/test_segments.py",
    ),
    mutant(
        "S43",
        "a message of exactly the threshold is embedded",
        "store/message_writer.py",
        "positions[first].content_bytes < self.embed_below",
        "positions[first].content_bytes <= self.embed_below",
        "store/test_content_store.py::test_sizes_around_the_limits",
        "store/test_embedding.py",
    ),
    mutant(
        "S49",
        "nothing is delivered past the queue",
        "queues/queue.py",
        "        if ready_count == 0 and (size",
        "        if False and (size",
        "queues/test_queue_paging.py::test_t63_direct_delivery",
    ),
    mutant(
        "S60",
        "unacked messages do not count as in memory",
        "queues/queue_memory.py",
        "return self._ready.ram_count + self._out.ram_count",
        "return self._ready.ram_count",
        "queues/test_queue_unacked.py",
    ),
    mutant(
        "S62",
        "the oldest of q4 sinks first",
        "queues/variable_queue.py",
        "self.q3.append_left(self.q4.pop_right())",
        "self.q3.append_left(self.q4.pop_left())",
        "queues/test_queue_paging.py",
    ),
    mutant(
        "S63",
        "q3 gives its oldest to delta",
        "queues/variable_queue.py",
        "entry = self.q3.pop_right() if self.q3.count > 0 else self.q4.pop_right()",
        "entry = self.q3.pop_left() if self.q3.count > 0 else self.q4.pop_right()",
        "queues/test_queue_paging.py::test_c7_the_oldest_of_q3_stays",
    ),
    mutant(
        "S64",
        "q1 sinks to q3 although delta is in between",
        "queues/variable_queue.py",
        "        entry = self.q1.pop_left()\n        if self.delta.count == 0:\n",
        "        entry = self.q1.pop_left()\n        if True:\n",
        "queues/test_queue_paging.py",
    ),
    mutant(
        "S65",
        "any number of betas is permitted",
        "queues/paging.py",
        "    return max(segment_entries, beta - beta * beta // (beta + target_ram_count))",
        "    return max(segment_entries, beta)",
        "queues/test_paging.py::test_permitted_betas",
    ),
    mutant(
        "S66",
        "single messages go to delta",
        "queues/paging.py",
        "        if surplus < batch:\n            surplus = progress.push_left\n",
        "",
        "queues/test_queue_paging.py::test_s66_only_lumps_go_to_delta",
    ),
    mutant(
        "S71",
        "q1 stays behind an empty middle",
        "queues/variable_queue.py",
        "            if self.q3.count == 0 and self.q1.count > 0:\n",
        "            if False:\n",
        "queues/test_variable_queue.py::test_taking_the_last_of_q3_makes_q1_the_head",
    ),
    mutant(
        "S72",
        "q2 stays behind an empty delta",
        "queues/variable_queue.py",
        "            if self.q2.count > 0:\n                self.q3 = _joined",
        "            if False:\n                self.q3 = _joined",
        "queues/test_variable_queue.py::test_an_emptied_delta_hands_on_to_q2",
    ),
    mutant(
        "S76",
        "what is transient counts as lasting in the index",
        "store/queue_store.py",
        "        return self.is_durable and position.persistent\n",
        "        return self.is_durable\n",
        "store/test_segments.py::test_transient_messages_are_paged_and_do_not_outlive_the_node",
    ),
    mutant(
        "S77",
        "a queue pages all it has in one turn",
        "queues/paging.py",
        "    steps: i64 = max(contents.host.steps_left, i64(WRITE_STEPS))\n    step",
        "    steps: i64 = 1 << 40\n    step",
        "queues/test_queue_paging.py::test_w19_paging_goes_in_slices_and_other_queues_have_their_turn",
    ),
    mutant(
        "W2",
        "checksums of bodies are not looked at",
        "store/record.py",
        "    return read_u32(data, start + 12) == crc32c(body, header_crc)",
        "    return len(body) >= 0 or header_crc > 0",
        "store/test_recovery.py::test_every_flipped_bit_costs_one_message_at_most",
    ),
    mutant(
        "W9",
        "files are deleted by the checkpoint that still names them",
        "store/checkpoint_needs.py",
        "        self._deletable_paths = self._dead_paths + dead_contents_paths\n",
        "        paths = paths + self._dead_paths + dead_contents_paths\n        self._deletable_paths = []\n",
        "store/test_checkpoint_job.py",
        "store/test_content_recovery.py",
        "store/test_segments.py",
    ),
    mutant(
        "W27",
        "a failed batch's file is written to again",
        "store/journal.py",
        "        self.failed_count += 1\n        self._needs_new_file = True\n",
        "        self.failed_count += 1\n",
        "store/test_flusher.py",
        "store/test_journal_machine.py",
    ),
    mutant(
        "W28",
        "the name of a new journal file is not synced",
        "store/disk/flusher.py",
        "        if batch.starts_file:\n            self._files.sync_directory(JOURNAL_DIRECTORY)\n",
        "",
        "store/test_flusher.py",
    ),
    mutant(
        "W29",
        "everything is redelivered after a clean stop",
        "queues/paged_queue.py",
        "        if not is_clean:\n            ledger.delivered_upto",
        "        if True:\n            ledger.delivered_upto",
        "kill/test_restart.py::test_a_clean_stop_remembers_what_was_delivered",
    ),
    mutant(
        "G1",
        "every third message is dropped at a start",
        "queues/paged_queue.py",
        "        for position in positions:\n            entry = Entry(position.message",
        "        for position in positions:\n            if position.seq % 3 == 2:\n                continue\n            entry = Entry(position.message",
        "spark/test_exactly_once.py",
    ),
    mutant(
        "G2",
        "acks of a failed batch are not written again",
        "store/journal.py",
        "        for ledger, runs in batch.acks:\n            ledger.journaled.runs.extend(runs)\n            self.mark_dirty(ledger)\n        self._unwritten",
        "        self._unwritten",
        "store/test_journal_machine.py",
    ),
    mutant(
        "G3",
        "requeued messages come last",
        "queues/variable_queue.py",
        "            self.q4.put_back(entries)\n            for entry in entries:\n",
        "            for entry in entries:\n                self.q4.append(entry)\n",
        "protocol/test_settle.py::test_requeue_to_the_original_place",
    ),
]
