/** What the daemon and its editors say to each other beyond LSP. Types only: nothing here runs. */

export interface Hunk {
  readonly id: string;
  readonly oldStart: number;
  readonly oldLines: number;
  readonly newStart: number;
  readonly newLines: number;
  readonly text: string;
}

export interface ChangedFile {
  readonly path: string;
  readonly kind: "modified" | "added" | "deleted" | "renamed";
  readonly from?: string;
  readonly hunks: readonly Hunk[];
}

/** `devtools/approvalRequested` and `devtools/approvalUpdated`; fields that this editor does not use are left out. */
export interface ApprovalPayload {
  readonly id: string;
  readonly plan: string;
  readonly step: string;
  readonly agent: string;
  readonly files: readonly ChangedFile[];
  readonly rememberText: string | null;
  readonly expiresAt: string;
}

/** `devtools/approvalResolved`. */
export interface Resolution {
  readonly id: string;
  readonly status: "approved" | "denied" | "expired" | "withdrawn" | "stale" | "lost";
  readonly by: string;
}

/** The answer to `devtools/decide`: `applied` says whether this answer was the one that counted. */
export interface Decided extends Resolution {
  readonly applied: boolean;
  /** After "remember": what would keep it for good, as TOML for the file at the root that has the rules. */
  readonly rule?: string;
  readonly ruleFile?: string;
}

export interface Decision {
  readonly id: string;
  readonly approve: boolean;
  readonly note?: string;
  readonly remember?: boolean;
  readonly edited?: readonly { readonly path: string; readonly content: string }[];
  /** Hunks that are left out, by id. */
  readonly drop?: readonly string[];
}

/** `devtools/diff` with `part: "words"`. */
export interface Words {
  readonly id: string;
  readonly headline: string;
  readonly details: readonly string[];
}

/** `devtools/diff` with `part: "text"`. */
export interface DiffText extends Words {
  readonly text: string;
}

/** One hunk of a file: its 1-based lines in the text after the change as it would be now (before it, of a deletion). */
export interface PlacedHunk {
  readonly id: string;
  readonly dropped: boolean;
  readonly start: number;
  /** 0 where it only removes lines. */
  readonly lines: number;
  readonly added: number;
  readonly removed: number;
  /** The first line that it changes, with its sign. */
  readonly summary: string;
}

/** One file of `devtools/diff`; a text is null where there is none, or where it is not known as a whole. */
export interface FileTexts {
  readonly path: string;
  readonly from?: string;
  readonly kind: ChangedFile["kind"];
  readonly before: string | null;
  readonly after: string | null;
  readonly partial?: boolean;
  readonly hunks: readonly PlacedHunk[];
}

/** `devtools/diff` with `part: "hunks"`. */
export interface HunkPlaces extends Words {
  readonly files: readonly Pick<FileTexts, "path" | "from" | "kind" | "hunks">[];
}

/** `devtools/diff` with `part: "texts"`. */
export interface DiffDocument extends Words {
  readonly diff: string;
  readonly files: readonly FileTexts[];
  readonly truncated?: boolean;
}

export interface LandedFile {
  readonly path: string;
  /** Absent where only the activity log tells of it. */
  readonly kind?: ChangedFile["kind"];
  readonly from?: string;
  /** 1-based lines as they are now, both ends included. */
  readonly ranges: readonly { readonly start: number; readonly end: number }[];
}

/** `devtools/landed`. */
export interface Landed {
  readonly plan: string;
  readonly agent: string;
  readonly files: readonly LandedFile[];
}

/** One line of `activity.jsonl`. */
export interface ActivityEntry {
  readonly time: string;
  readonly event: string;
  readonly plan: string;
  readonly agent?: string;
  readonly paths?: readonly string[];
}

/** `devtools/stopping`: somebody ends the daemon on purpose. */
export interface Stopping {
  readonly reason: string;
  readonly socket: string;
}

/** `devtools/status`, as far as it is shown here. */
export interface Status {
  readonly root: string;
  readonly version: string;
  readonly pid: number;
  readonly uptime_s: number;
  readonly engines: readonly { readonly id: string; readonly state: string; readonly version: string | null }[];
  readonly editors: readonly { readonly name: string; readonly version: string }[];
  readonly agents: readonly { readonly name: string; readonly version: string }[];
  readonly pendingApprovals: number;
  readonly gate: { readonly mode: string; readonly rules: readonly unknown[] };
  readonly stateDir: string;
  readonly skipped: readonly unknown[];
}
