/** What waits for a person, over all roots, and how they answer. A mirror of what the daemons tell. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import type { Connection } from "./connection";
import { type Proposals, showFile } from "./proposals";
import { counted, inLabel, inNotification, showProblem, tell } from "./words";
import type { ApprovalPayload, Decided, Decision, DiffDocument, DiffText, HunkPlaces, Resolution, Words } from "./wire";

export interface Waiting {
  readonly connection: Connection;
  payload: ApprovalPayload;
  headline: string;
  details: readonly string[];
}

const MAX_NOTIFICATIONS = 3;
/** Of a change of more files, tabs are not opened: it is shown as one diff, and file by file from the list. */
const MAX_TABS = 8;
/** Views hear of many changes at once. */
const TELL_AFTER_MS = 50;

export class Approvals implements vscode.Disposable {
  private readonly waiting = new Map<string, Waiting>();
  private readonly changes = new vscode.EventEmitter<void>();
  private asking = 0;
  private telling: NodeJS.Timeout | undefined;
  private readonly undoing = new Set<Connection>();
  readonly onDidChange = this.changes.event;

  constructor(private readonly proposals: Proposals) {}

  dispose(): void {
    clearTimeout(this.telling);
    this.changes.dispose();
  }

  get count(): number {
    return this.waiting.size;
  }

  private changed(): void {
    this.telling ??= setTimeout(() => {
      this.telling = undefined;
      this.changes.fire();
    }, TELL_AFTER_MS);
  }

  /** Everything that waits, oldest first. */
  all(): Waiting[] {
    return [...this.waiting.values()];
  }

  find(id: string): Waiting | undefined {
    return this.waiting.get(id);
  }

  /** Hear of approvals over a client that is about to start. */
  listen(connection: Connection, client: LanguageClient): void {
    client.onNotification("devtools/approvalRequested", (payload: ApprovalPayload) => this.take(connection, payload));
    client.onNotification("devtools/approvalUpdated", (payload: ApprovalPayload) => this.take(connection, payload));
    client.onNotification("devtools/approvalResolved", (resolution: Resolution) => this.resolved(resolution));
    client.onNotification("devtools/showDiff", ({ id }: { id: string }) => void this.show(id));
  }

  /** A connection is gone; what waits is told again when it is back. */
  lost(connection: Connection): void {
    for (const [id, item] of this.waiting) {
      if (item.connection === connection) {
        this.waiting.delete(id);
        void this.proposals.forget(id);
      }
    }
    this.undoing.delete(connection);
    this.changed();
  }

  /** Answer, and say when it came too late. What a person changed and left out goes with an approval. */
  async decide(id: string, answer: Omit<Decision, "id" | "edited" | "drop">): Promise<Decided | undefined> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      void tell("info", "That does not wait for a decision any more.");
      return undefined;
    }
    const edited = answer.approve ? this.proposals.edited(id) : [];
    const drop = answer.approve ? this.proposals.dropIn(id) : [];
    try {
      const chosen = { ...(edited.length > 0 ? { edited } : {}), ...(drop.length > 0 ? { drop } : {}) };
      const decision: Decision = { id, ...answer, ...chosen };
      const decided = await item.connection.request<Decided>("devtools/decide", decision);
      if (!decided.applied) {
        void tell("info", `Too late: ${decided.status} by ${decided.by} already.`);
      } else if (answer.remember === true) {
        void offerRule(decided);
      }
      return decided;
    } catch (problem) {
      showProblem(problem);
      return undefined;
    }
  }

  /** Approve this and what is like it; a person reads first what that covers, unless they have read it already. */
  async remember(id: string, asked: boolean): Promise<void> {
    const text = this.waiting.get(id)?.payload.rememberText;
    if (text === null) {
      void tell("info", "Nothing can be remembered of this one: approve it alone, or write a rule in the configuration.");
      return;
    }
    const yes = "Remember and Approve";
    if (asked && text !== undefined) {
      const chosen = await vscode.window.showWarningMessage(inNotification(text), { modal: true }, yes);
      if (chosen !== yes) {
        return;
      }
    }
    await this.decide(id, { approve: true, remember: true });
  }

  /** Deny and say why; asked for unless it is given, as by a key binding of the person's own. */
  async denyWithNote(id: string, given?: string): Promise<void> {
    const title = this.waiting.get(id)?.headline ?? "Deny";
    const note = given ?? (await vscode.window.showInputBox({ title, prompt: "Why not? The agent is told." }));
    if (note !== undefined) {
      await this.decide(id, { approve: false, ...(note === "" ? {} : { note }) });
    }
  }

  /** Show what would be written: side by side where the texts are known, else the diff as it would be applied. */
  async show(id: string): Promise<void> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      return;
    }
    try {
      const paths = item.payload.files.length;
      const document = paths > 0 && paths <= MAX_TABS ? await this.texts(item) : undefined;
      if (document === undefined) {
        await vscode.window.showTextDocument(await this.putText(item), { preview: false });
        if (paths > 1) {
          const list = "In the view “Waiting for You” each can be opened by itself.";
          void tell("info", `${counted(paths, "file")}, shown as one diff. ${list}`);
        }
        return;
      }
      // The last one that is opened has the focus: the first file.
      for (const file of [...document.files].reverse()) {
        await showFile(document, file);
      }
    } catch (problem) {
      showProblem(problem);
    }
  }

  /** Show one of its files side by side, or as much of its diff as there is. */
  async showFile(id: string, path: string): Promise<void> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      return;
    }
    try {
      const document = await this.texts(item, path);
      const file = document?.files[0];
      if (document !== undefined && file !== undefined) {
        await showFile(document, file);
        return;
      }
      await vscode.window.showTextDocument(await this.putText(item, path), { preview: false });
    } catch (problem) {
      showProblem(problem);
    }
  }

  /** Leave out these hunks, and no others, in what is shown and in what an approval says. */
  async leaveOut(id: string, hunks: ReadonlySet<string>): Promise<void> {
    const item = this.waiting.get(id);
    if (item === undefined) {
      return;
    }
    const before = this.proposals.dropped(id);
    const changed = [...hunks, ...before].filter((one) => hunks.has(one) !== before.has(one));
    const edited = new Set(this.proposals.edited(id).map((file) => file.path));
    const spoken = item.payload.files.find(
      (file) => edited.has(file.path) && file.hunks.some((hunk) => changed.includes(hunk.id)),
    );
    if (spoken !== undefined) {
      void tell("warning", `You have changed ${spoken.path} yourself: take hunks back in its text, or undo your change.`);
      return;
    }
    try {
      await this.proposals.settle(id);
      this.proposals.setDropped(id, hunks);
      const touched = item.payload.files.filter((file) => file.hunks.some((hunk) => changed.includes(hunk.id)));
      for (const file of touched) {
        await this.texts(item, file.path);
      }
      if (this.proposals.hasText(id)) {
        await this.putText(item);
      }
    } catch (problem) {
      this.proposals.setDropped(id, before);
      showProblem(problem);
    }
  }

  /** The whole texts, without the hunks that are left out; undefined where they are not known or are too long. */
  async texts(item: Waiting, path?: string): Promise<DiffDocument | undefined> {
    const { id } = item.payload;
    const drop = this.dropsIn(item, path);
    const part = { id, drop, ...(path === undefined ? {} : { path }) };
    const document = await item.connection.request<DiffDocument>("devtools/diff", part);
    const whole = document.truncated !== true && document.files.every((file) => file.partial !== true);
    if (!whole || document.files.length === 0 || !this.waiting.has(id)) {
      return undefined;
    }
    await this.proposals.put(document);
    return document;
  }

  /** Where its hunks are, also of texts that are not known or too long. */
  places(item: Waiting): Promise<HunkPlaces> {
    const part = { id: item.payload.id, part: "hunks", drop: this.dropsIn(item) };
    return item.connection.request<HunkPlaces>("devtools/diff", part);
  }

  private async putText(item: Waiting, path?: string): Promise<vscode.Uri> {
    const part = { id: item.payload.id, part: "text", drop: this.dropsIn(item, path), ...(path === undefined ? {} : { path }) };
    const { text } = await item.connection.request<DiffText>("devtools/diff", part);
    return this.proposals.putText(item.payload.id, text);
  }

  private dropsIn(item: Waiting, path?: string): string[] {
    const dropped = this.proposals.dropped(item.payload.id);
    return item.payload.files
      .filter((file) => path === undefined || file.path === path)
      .flatMap((file) => file.hunks.map((hunk) => hunk.id))
      .filter((hunk) => dropped.has(hunk));
  }

  /** The next undo that this connection is asked about is the person's own: it is shown to them at once. */
  expectUndo(connection: Connection): vscode.Disposable {
    this.undoing.add(connection);
    return new vscode.Disposable(() => this.undoing.delete(connection));
  }

  private take(connection: Connection, payload: ApprovalPayload): void {
    const known = this.waiting.get(payload.id);
    const item = known ?? { connection, payload, headline: `${payload.agent}: ${payload.step}`, details: [] };
    item.payload = payload;
    this.waiting.set(payload.id, item);
    this.changed();
    void this.describe(item, known === undefined);
  }

  private async describe(item: Waiting, fresh: boolean): Promise<void> {
    const { id } = item.payload;
    try {
      const words = await item.connection.request<Words>("devtools/diff", { id, part: "words" });
      item.headline = words.headline;
      item.details = words.details;
    } catch {
      // It has ended meanwhile; the notification about that is on its way.
      return;
    }
    if (this.waiting.get(id) !== item) {
      return;
    }
    this.changed();
    if (!fresh) {
      return;
    }
    if (item.payload.step === "undo" && this.undoing.delete(item.connection)) {
      await this.show(id);
    } else if (vscode.workspace.getConfiguration("devtools").get<string>("ask") === "notify") {
      await this.ask(item);
    }
  }

  /** In a notification, as long as few of them stand there; the status bar and the view count all. */
  private async ask(item: Waiting): Promise<void> {
    if (this.asking >= MAX_NOTIFICATIONS) {
      return;
    }
    this.asking += 1;
    try {
      await this.askNow(item);
    } finally {
      this.asking -= 1;
    }
  }

  private async askNow(item: Waiting): Promise<void> {
    const { id } = item.payload;
    const chosen = await tell("warning", item.headline, "Show Diff", "Approve", "Deny");
    if (chosen === "Show Diff") {
      await this.show(id);
    } else if (chosen !== undefined) {
      await this.decide(id, { approve: chosen === "Approve" });
    }
  }

  private resolved(resolution: Resolution): void {
    const item = this.waiting.get(resolution.id);
    if (item === undefined) {
      return;
    }
    this.waiting.delete(resolution.id);
    void this.proposals.forget(resolution.id);
    this.changed();
    if (resolution.by !== "editor") {
      const words = `${resolution.status} by ${resolution.by}: ${item.headline}`;
      vscode.window.setStatusBarMessage(inLabel(words), 5_000);
    }
  }
}

/** What was remembered ends with the agent's session: show what would keep it. */
async function offerRule({ rule, ruleFile }: Decided): Promise<void> {
  if (rule === undefined) {
    void tell("info", "Remembered until the agent's session ends; no rule of the configuration can say it for good.");
    return;
  }
  const show = "Show the Rule";
  if ((await tell("info", `Remembered until the agent's session ends. A rule in ${ruleFile} keeps it for good.`, show)) === show) {
    const content = `# For ${ruleFile}.\n${rule}`;
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "toml", content }));
  }
}
