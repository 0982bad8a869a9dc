//! Reads an AMDGPU code object (ELF64, LLVM AMDGPUUsage "ELF Code Object") from untrusted bytes
//! into plain vectors: segments, dynamic symbols, relocations and the metadata note. Placing it in
//! memory is left to `load`.

use super::error::ObjectError;
use super::machine::machine_name;
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// `e_machine` of AMD GPUs.
const EM_AMDGPU: u16 = 224;
/// `EI_OSABI` of the HSA runtime.
const ELFOSABI_AMDGPU_HSA: u8 = 64;
/// `EI_ABIVERSION` of code object versions 4, 5 and 6.
const ABI_VERSIONS: std::ops::RangeInclusive<u8> = 2..=4;
/// Note type of the metadata, owner "AMDGPU".
const NT_AMDGPU_METADATA: u32 = 32;
/// Most bytes that an image may span in memory.
const MAX_IMAGE: u64 = 256 << 20;
/// Most entries that a symbol or relocation table may have.
const MAX_ENTRIES: usize = 1 << 20;

/// One loadable segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub index: usize,
    pub address: u64,
    /// Bytes from the file; the rest up to `memory_size` is zero.
    pub file: std::ops::Range<usize>,
    pub memory_size: u64,
    pub writable: bool,
    pub executable: bool,
}

/// One defined dynamic symbol.
#[derive(Debug, Clone)]
pub(crate) struct Symbol {
    pub name: String,
    pub address: u64,
    pub size: u64,
    pub defined: bool,
}

/// One dynamic relocation.
#[derive(Debug, Clone)]
pub(crate) struct Relocation {
    pub offset: u64,
    pub kind: u32,
    /// Index into `Parsed::symbols`; 0 means none.
    pub symbol: usize,
    pub addend: i64,
}

/// What the file holds.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub segments: Vec<Segment>,
    /// All dynamic symbols, index 0 included.
    pub symbols: Vec<Symbol>,
    pub relocations: Vec<Relocation>,
    /// Byte range of the metadata note's descriptor in the file.
    pub note: std::ops::Range<usize>,
}

fn elf(what: impl ToString) -> ObjectError {
    ObjectError::Elf {
        what: what.to_string(),
    }
}

/// Checks identification and target, then reads the tables. `mach` is the accepted
/// `EF_AMDGPU_MACH`.
pub(crate) fn parse(bytes: &[u8], mach: u8, target: &str) -> Result<Parsed, ObjectError> {
    let header = Header::parse(bytes).map_err(elf)?;
    if header.is_big_endian() {
        return Err(elf("big-endian"));
    }
    check_header(header, mach, target)?;
    let programs = header.program_headers(LE, bytes).map_err(elf)?;
    let sections = header.sections(LE, bytes).map_err(elf)?;
    let mut segments = Vec::new();
    let mut note = None;
    let mut dynamic_relocation_bytes = 0_u64;
    for (index, program) in programs.iter().enumerate() {
        if program.p_type(LE) == elf::PT_LOAD {
            segments.push(segment(index, program, bytes)?);
        }
        if let Some(notes) = program.notes(LE, bytes).map_err(elf)? {
            note = note.or(find_note(notes, bytes)?);
        }
        if let Some(entries) = program.dynamic(LE, bytes).map_err(elf)? {
            for entry in entries
                .iter()
                .take_while(|entry| entry.tag(LE) != elf::DT_NULL)
            {
                if [elf::DT_RELASZ, elf::DT_PLTRELSZ, elf::DT_RELSZ].contains(&entry.tag(LE)) {
                    dynamic_relocation_bytes =
                        dynamic_relocation_bytes.saturating_add(entry.val(LE));
                }
            }
        }
    }
    check_layout(&mut segments)?;
    let symbols = symbols(&sections, bytes)?;
    let relocations = relocations(&sections, bytes, symbols.len())?;
    if dynamic_relocation_bytes != 24 * relocations.len() as u64 {
        return Err(elf(
            "the dynamic section names relocations that no SHT_RELA section holds",
        ));
    }
    let note = note.ok_or_else(|| ObjectError::Metadata {
        offset: 0,
        what: "the note is missing".to_owned(),
    })?;
    Ok(Parsed {
        segments,
        symbols,
        relocations,
        note,
    })
}

fn check_header(header: &Header, mach: u8, target: &str) -> Result<(), ObjectError> {
    let field = |field, found: u64, expected| {
        Err(ObjectError::Header {
            field,
            found,
            expected,
        })
    };
    let machine = header.e_machine(LE).0;
    if machine != EM_AMDGPU {
        return field("e_machine", machine.into(), "224 (EM_AMDGPU)");
    }
    let ident = header.e_ident();
    if ident.os_abi.0 != ELFOSABI_AMDGPU_HSA {
        return field(
            "EI_OSABI",
            ident.os_abi.0.into(),
            "64 (ELFOSABI_AMDGPU_HSA)",
        );
    }
    if !ABI_VERSIONS.contains(&ident.abi_version) {
        return field(
            "EI_ABIVERSION",
            ident.abi_version.into(),
            "2, 3 or 4 (code object version 4, 5 or 6)",
        );
    }
    if header.e_type(LE) != elf::ET_DYN {
        return field(
            "e_type",
            header.e_type(LE).0.into(),
            "3 (ET_DYN): link the object with ld.lld -shared",
        );
    }
    let flags = header.e_flags(LE).0;
    let found = (flags & 0xff) as u8;
    if found != mach {
        return Err(ObjectError::Target {
            found: machine_name(found),
            expected: target.to_owned(),
        });
    }
    if flags & !0xff != 0 {
        return Err(ObjectError::Flags {
            flags,
            target: target.to_owned(),
        });
    }
    Ok(())
}

fn segment(
    index: usize,
    program: &elf::ProgramHeader64<LittleEndian>,
    bytes: &[u8],
) -> Result<Segment, ObjectError> {
    let (address, size) = (program.p_vaddr(LE), program.p_memsz(LE));
    let (offset, file_size) = program.file_range(LE);
    let bad = |what| {
        Err(ObjectError::Segment {
            index,
            address,
            size,
            what,
        })
    };
    let Some(end) = offset
        .checked_add(file_size)
        .filter(|&end| end <= bytes.len() as u64)
    else {
        return bad("its file bytes lie past the end of the file");
    };
    if file_size > size {
        return bad("it has more bytes in the file than in memory");
    }
    if address.checked_add(size).is_none_or(|end| end > MAX_IMAGE) {
        return bad("it ends past 256 MiB, the largest image accepted");
    }
    let flags = program.p_flags(LE);
    let (writable, executable) = (flags.contains(elf::PF_W), flags.contains(elf::PF_X));
    if writable && executable {
        return bad("it is both writable and executable");
    }
    let file = offset as usize..end as usize;
    Ok(Segment {
        index,
        address,
        file,
        memory_size: size,
        writable,
        executable,
    })
}

/// Sorts by address, drops empty segments and refuses overlaps.
fn check_layout(segments: &mut Vec<Segment>) -> Result<(), ObjectError> {
    segments.retain(|segment| segment.memory_size > 0);
    segments.sort_by_key(|segment| segment.address);
    if segments.is_empty() {
        return Err(elf("no loadable segment"));
    }
    let mut end = 0;
    for Segment {
        index,
        address,
        memory_size,
        ..
    } in segments.iter()
    {
        if *address < end {
            let what = "it overlaps the segment before it";
            return Err(ObjectError::Segment {
                index: *index,
                address: *address,
                size: *memory_size,
                what,
            });
        }
        end = address + memory_size;
    }
    Ok(())
}

fn find_note(
    mut notes: object::read::elf::NoteIterator<'_, Header>,
    bytes: &[u8],
) -> Result<Option<std::ops::Range<usize>>, ObjectError> {
    while let Some(note) = notes.next().map_err(elf)? {
        if note.name() == b"AMDGPU" && note.n_type(LE).0 == NT_AMDGPU_METADATA {
            let start = (note.desc().as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
            return Ok(Some(start..start + note.desc().len()));
        }
    }
    Ok(None)
}

type Sections<'data> = object::read::elf::SectionTable<'data, Header>;

fn symbols(sections: &Sections<'_>, bytes: &[u8]) -> Result<Vec<Symbol>, ObjectError> {
    let table = sections.symbols(LE, bytes, elf::SHT_DYNSYM).map_err(elf)?;
    if table.len() > MAX_ENTRIES {
        return Err(elf("more than 1048576 dynamic symbols"));
    }
    let mut symbols = Vec::with_capacity(table.len());
    for symbol in table.symbols() {
        let name = symbol.name(LE, table.strings()).map_err(elf)?;
        let name = std::str::from_utf8(name).map_err(|_| elf("a symbol name is not UTF-8"))?;
        symbols.push(Symbol {
            name: name.to_owned(),
            address: symbol.st_value(LE),
            size: symbol.st_size(LE),
            defined: !symbol.is_undefined(LE) && !symbol.is_absolute(LE) && !symbol.is_common(LE),
        });
    }
    Ok(symbols)
}

fn relocations(
    sections: &Sections<'_>,
    bytes: &[u8],
    symbols: usize,
) -> Result<Vec<Relocation>, ObjectError> {
    let mut relocations = Vec::new();
    for section in sections.iter() {
        if !section.sh_flags(LE).contains(elf::SHF_ALLOC) {
            continue;
        }
        if section.sh_type(LE) == elf::SHT_REL {
            return Err(elf("SHT_REL relocations; AMDGPU uses SHT_RELA"));
        }
        let Some((rows, _)) = section.rela(LE, bytes).map_err(elf)? else {
            continue;
        };
        if relocations.len() + rows.len() > MAX_ENTRIES {
            return Err(elf("more than 1048576 relocations"));
        }
        for row in rows {
            let symbol = row.r_sym(LE, false) as usize;
            if symbol != 0 && symbol >= symbols {
                return Err(elf(
                    "a relocation refers to a symbol past the end of the table",
                ));
            }
            let kind = row.r_type(LE, false).0;
            relocations.push(Relocation {
                offset: row.r_offset.get(LE),
                kind,
                symbol,
                addend: row.r_addend.get(LE),
            });
        }
    }
    Ok(relocations)
}
